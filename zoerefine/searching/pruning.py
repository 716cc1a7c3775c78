"""When a trial is pruned: before training by a limit, or after an epoch by its validation AbsRel.

A pruner function takes the epochs of a trial and returns an Optuna pruner. To add one, write it
here and add its row to `PRUNERS` in `zoerefine/registries.py`.
"""

from collections.abc import Mapping

from optuna import Trial
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner

from zoerefine.searching.criteria import Criteria


def prune_reason_before_training(criteria: Criteria, figures: Mapping[str, float]) -> str:
    """Which limits a config exceeds by what is known before training; empty if none."""
    exceeded = [name for name, excess in criteria.excess(figures).items() if excess > 0]
    return f"too many {' and '.join(exceeded)}: not trained" if exceeded else ""


def is_pruned_after_epoch(criteria: Criteria, trial: Trial, epoch: int, abs_rel: float) -> bool:
    """Report an epoch's validation AbsRel to the pruner, and ask whether to stop the trial.

    Only a study whose single objective is AbsRel is pruned: no other objective is measured after
    each epoch, and Optuna does not prune several objectives.
    """
    if criteria.objectives != ("abs_rel",):
        return False
    trial.report(abs_rel, epoch)
    return trial.should_prune()


def median(epochs: int) -> BasePruner:
    """Prune where AbsRel is above the median of the earlier trials at the same epoch.

    Not in the first quarter of the epochs, where the learning rate may still rise.
    """
    return MedianPruner(n_warmup_steps=epochs // 4)


def halving(epochs: int) -> BasePruner:
    """Successive halving: only the best quarter of the trials continues after each rung."""
    return SuccessiveHalvingPruner()


def none(epochs: int) -> BasePruner:
    """No pruning."""
    return NopPruner()
