"""When a trial is pruned: before training by a limit, or at a step by its objective so far.

A pruner function takes the steps of a trial and returns an Optuna pruner. To add one, write it
here and add its row to `PRUNERS` in `zoerefine/registries.py`.
"""

from collections.abc import Mapping

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial

from zoerefine.searching.criteria import Criteria
from zoerefine.searching.first_objective import FirstObjective


def prune_reason_before_training(criteria: Criteria, figures: Mapping[str, float]) -> str:
    """Which limits a config exceeds by what is known before training; empty if none."""
    exceeded = [name for name, excess in criteria.excess(figures).items() if excess > 0]
    return f"too many {' and '.join(exceeded)}: not trained" if exceeded else ""


def auto(steps: int) -> BasePruner:
    """`median` where there is a single objective, `none` where there are several."""
    return SingleObjectiveMedian(n_warmup_steps=steps // 4)


class SingleObjectiveMedian(MedianPruner):
    """Prunes no study with several objectives.

    A trial that is worse in the first one can be a point of the Pareto front by the others, such as
    a small network.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        return not isinstance(study, FirstObjective) and super().prune(study, trial)


def median(steps: int) -> BasePruner:
    """Prune where the objective is worse than the median of the earlier trials at the same step.

    Not in the first quarter of the steps, where the learning rate may still rise.
    """
    return MedianPruner(n_warmup_steps=steps // 4)


def halving(steps: int) -> BasePruner:
    """Successive halving: only the best quarter of the trials continues after each rung."""
    return SuccessiveHalvingPruner()


def none(steps: int) -> BasePruner:
    """No pruning."""
    return NopPruner()
