"""A study with several objectives as a pruner sees it: with the first objective alone.

Optuna records values at steps, and prunes, only where there is a single objective; its TPE cannot
read such values of a pruned trial where there are several. So they are kept in an attribute of the
trial, and Optuna's pruners get a view of the study that has them and one direction.
"""

import copy
from collections.abc import Container

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from zoerefine.searching.trial_record import VALUES_AT_STEPS, values_at_steps


class FirstObjective(optuna.Study):
    """The view. Its methods that need the values of finished trials are not for use."""

    def __init__(self, study: optuna.Study, storage: optuna.storages.BaseStorage) -> None:
        super().__init__(study.study_name, storage)

    @property
    def directions(self) -> list[StudyDirection]:
        return super().directions[:1]

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        return [with_values(one) for one in super().get_trials(deepcopy, states)]

    def is_pruned(
        self, trial_id: int, step: int, value: float, pruner: optuna.pruners.BasePruner
    ) -> bool:
        """Record the first objective at a step of a trial; whether the pruner stops the trial.

        A step that was recorded before keeps its value, as in Optuna's own `Trial.report`.
        """
        known = values_at_steps(self._storage.get_trial(trial_id))
        values = {str(number): one for number, one in {step: value, **known}.items()}
        self._storage.set_trial_user_attr(trial_id, VALUES_AT_STEPS, values)
        return pruner.prune(self, with_values(self._storage.get_trial(trial_id)))


def with_values(trial: FrozenTrial) -> FrozenTrial:
    """A copy of a trial with the values at its steps where pruners look for them."""
    copied = copy.copy(trial)
    copied.intermediate_values = values_at_steps(trial)
    return copied
