"""When a study ends: no trial may begin any more. And why, where it has fewer than it might."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial

from zoerefine.searching.budget import planned_trials
from zoerefine.searching.patience import is_out_of_patience
from zoerefine.searching.study import Study
from zoerefine.searching.trial_record import has_begun, is_known


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
