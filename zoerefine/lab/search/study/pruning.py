"""When a trial is pruned: before training by a limit, or at a step by its objectives so far.

A pruner function takes the steps of a trial and returns an Optuna pruner. To add one, write it
here and add its row to `PRUNERS` in `zoerefine/base/registries.py`.
"""

import copy
from collections.abc import Container, Mapping, Sequence

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from zoerefine.lab.search.study.trials import (
    OBJECTIVES_AT_STEPS,
    Criteria,
    is_as_good,
    objectives_at_steps,
    values_at_steps,
)

# A study with several objectives as a pruner sees it: with the first objective alone.
#
# Optuna records values at steps, and prunes, only where there is a single objective; its TPE
# cannot read such values of a pruned trial where there are several. So they are kept in an
# attribute of the trial, and Optuna's pruners get a view of the study that has the first objective
# and its direction.


class FirstObjective(optuna.Study):
    """The view. Its methods that need the values of finished trials are not for use.

    Attributes:
        compared: shows only trials that, at the last step of this one, are as good in every other
            objective; None shows all.
    """

    compared: FrozenTrial | None = None

    def __init__(self, study: optuna.Study, storage: optuna.storages.BaseStorage) -> None:
        super().__init__(study.study_name, storage)

    @property
    def directions(self) -> list[StudyDirection]:
        return super().directions[:1]

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        found = super().get_trials(deepcopy, states)
        return [with_values(one) for one in found if self._is_shown(one)]

    def _is_shown(self, trial: FrozenTrial) -> bool:
        if self.compared is None:
            return True
        steps = objectives_at_steps(self.compared)
        theirs, ours = objectives_at_steps(trial).get(max(steps)), steps[max(steps)]
        if theirs is None or None in (*theirs, *ours):  # one is known only when a trial has ended
            return False
        return is_as_good(self._losses(theirs)[1:], self._losses(ours)[1:])

    def _losses(self, values: Sequence[float]) -> list[float]:
        """Objectives with the signs by which each is minimized."""
        directions = super().directions
        return [
            -value if one == StudyDirection.MAXIMIZE else value
            for one, value in zip(directions, values, strict=True)
        ]

    def is_pruned(
        self,
        trial_id: int,
        step: int,
        values: Sequence[float | None],
        pruner: optuna.pruners.BasePruner,
    ) -> bool:
        """Record the objectives at a step of a trial; whether the pruner stops the trial.

        A step that was recorded before keeps its values, as in Optuna's own `Trial.report`.
        """
        known = objectives_at_steps(self._storage.get_trial(trial_id))
        at_steps = {str(number): one for number, one in {step: values, **known}.items()}
        self._storage.set_trial_user_attr(trial_id, OBJECTIVES_AT_STEPS, at_steps)
        return pruner.prune(self, with_values(self._storage.get_trial(trial_id)))


def with_values(trial: FrozenTrial) -> FrozenTrial:
    """A copy of a trial with the values at its steps where pruners look for them."""
    copied = copy.copy(trial)
    copied.intermediate_values = values_at_steps(trial)
    return copied


def prune_reason_before_training(criteria: Criteria, figures: Mapping[str, float]) -> str:
    """Which limits a config exceeds by what is known before training; empty if none."""
    exceeded = [name for name, excess in criteria.excess(figures).items() if excess > 0]
    return f"too many {' and '.join(exceeded)}: not trained" if exceeded else ""


def auto(steps: int) -> BasePruner:
    """`median`, where there are several objectives among the trials that are as good in the others.

    A trial that is worse in the first objective can be a point of the Pareto front by the others,
    such as a small network. This one stops it only where it is worse in the first objective than
    half of the trials, five or more, that are as good in every other: they dominate it.
    """
    return Dominated(n_warmup_steps=steps // 4)


class Dominated(MedianPruner):
    """Stops a trial that half of the comparable ones dominate."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        if isinstance(study, FirstObjective):
            study = copy.copy(study)
            study.compared = trial
        return super().prune(study, trial)


def median(steps: int) -> BasePruner:
    """Prune where the objective is worse than the median of the earlier trials at the same step.

    Not in the first quarter of the steps, where the learning rate may still rise.
    """
    return MedianPruner(n_warmup_steps=steps // 4)


def halving(steps: int) -> BasePruner:
    """Successive halving: only the best quarter of the trials continues after each rung, which is
    the second, fifth, 17th, 65th ... value."""
    return Halving(min_resource=1)


class Halving(SuccessiveHalvingPruner):
    """Counts a trial's values in the place of its steps, which a script numbers as it likes."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        counted = copy.copy(trial)
        in_order = [value for _, value in sorted(trial.intermediate_values.items())]
        counted.intermediate_values = dict(enumerate(in_order))
        return super().prune(study, counted)


def none(steps: int) -> BasePruner:
    """No pruning."""
    return NopPruner()
