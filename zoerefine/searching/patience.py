"""When a study stops because its trials do not improve it any more: STUDY.PATIENCE."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from zoerefine.searching.study import Study
from zoerefine.searching.trial_record import exceeded_limits, is_known


def is_out_of_patience(study: Study, trials: Sequence[FrozenTrial]) -> bool:
    """Whether STUDY.PATIENCE trials have ended since the last better one."""
    patience = study.options.PATIENCE
    return 0 < patience <= trials_since_better(trials, list(study.criteria.directions.values()))


def trials_since_better(trials: Sequence[FrozenTrial], directions: Sequence[str]) -> int:
    """How many trials have ended since the last better one, by their numbers.

    A trial is better if it is within the limits and no earlier one is as good in every objective.
    With several objectives it is a new point of the Pareto front. Trials of an earlier study are
    not counted, and the others must be better than they.
    """
    signs = [-1 if direction == "maximize" else 1 for direction in directions]
    front: list[list[float]] = []
    since = 0
    for trial in (one for one in trials if one.state.is_finished()):
        since += not is_known(trial)
        if trial.state != TrialState.COMPLETE or exceeded_limits(trial):
            continue
        values = [sign * value for sign, value in zip(signs, trial.values, strict=True)]
        if not any(is_as_good(one, values) for one in front):
            front = [one for one in front if not is_as_good(values, one)] + [values]
            since = 0
    return since


def is_as_good(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether values that are minimized are nowhere above others."""
    return all(mine <= theirs for mine, theirs in zip(one, other, strict=True))
