"""When a study ends: trials, STUDY.PATIENCE, STUDY.TIMEOUT_S, or the first trials all failed."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from zoerefine.base.config.study_keys import StudyKeys
from zoerefine.base.errors import UserError
from zoerefine.lab.search.space.space import Parameter, size_of
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import (
    exceeded_limits,
    has_begun,
    is_as_good,
    is_known,
    reason_of,
)

MAX_FAILURES = 5  # the study ends if this many trials fail and none succeeds


def refuse_if_all_failed(trials: Sequence[FrozenTrial]) -> None:
    """Raises `UserError` where the first trials of a study all failed."""
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    ended = [trial for trial in trials if trial.state.is_finished() and not is_known(trial)]
    if len(failed) >= MAX_FAILURES and len(failed) == len(ended):
        raise UserError(
            f"the first {len(failed)} trials all failed; the last one: {reason_of(failed[-1])}"
        )


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


def planned_trials(space: Sequence[Parameter], options: StudyKeys, known: int = 0) -> int:
    """How many trials a study with these keys of STUDY has, if nothing ends it early.

    Args:
        known: combinations that an earlier study has tried.
    """
    left = size_of(space) - known
    return int(left if options.SAMPLER == "grid" else min(options.TRIALS, left))


def may_begin(study: Study, trials: Sequence[FrozenTrial]) -> bool:
    """Whether a trial may begin that no worker has had yet: a queued one or a new one."""
    if count_begun(trials) >= planned(study, trials):
        return False
    return not is_out_of_patience(study, trials)


def count_begun(trials: Sequence[FrozenTrial]) -> int:
    """How many trials have begun in this study."""
    return sum(has_begun(trial) and not is_known(trial) for trial in trials)


def planned(study: Study, trials: Sequence[FrozenTrial]) -> int:
    """How many trials of its own a study has, if nothing ends it early."""
    return planned_trials(study.space, study.options, known=sum(map(is_known, trials)))


def is_over(study: Study) -> bool:
    """Whether every trial that has begun has ended, and no other may begin."""
    return study.is_idle() and not may_begin(study, study.trials())


def early_end(study: Study) -> str:
    """Why a study that has ended has fewer trials than it might; empty where it has all."""
    trials, options = study.trials(), study.options
    ended = sum(trial.state.is_finished() and not is_known(trial) for trial in trials)
    most = planned(study, trials)
    if ended < most and is_out_of_patience(study, trials):
        reason = f"no better trial among the last {options.PATIENCE} (STUDY.PATIENCE)"
    elif ended < most:
        reason = f"the time limit of {options.TIMEOUT_S:g} s has passed (STUDY.TIMEOUT_S)"
    elif not study.is_grid and ended < options.TRIALS:
        most, reason = options.TRIALS, "every combination has been tried"
    else:
        return ""
    return f"ended after {ended} of {most} trials: {reason}"
