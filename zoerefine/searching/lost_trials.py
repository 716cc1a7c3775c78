"""Trials that lost their worker: they wait under their own number for another to continue them.

A worker may be killed between any two lines here; the next call then does the rest.
"""

from optuna.trial import FrozenTrial, TrialState

from zoerefine.searching.study import Study
from zoerefine.searching.trial_record import is_claimed


def requeue_lost_trials(study: Study) -> None:
    """Put trials in the queue whose workers are gone; the caller holds the study's lock."""
    # Optuna's own `fail_stale_trials` would end such a trial, and only a new number could
    # continue it.
    stale = study.storage._get_stale_trial_ids(study.optuna._study_id)
    for trial in _running(study):
        if not is_claimed(trial):  # its worker died while it claimed: we hold the lock now
            put_in_queue(study, trial._trial_id)
        elif trial._trial_id in stale:
            _lose(study, trial)


def requeue_trials_of(
    study: Study, worker: str, with_its_driver: bool = False
) -> list[FrozenTrial]:
    """Put the trials of a worker that is known to be dead in the queue, and return them.

    Args:
        with_its_driver: it ended with its driver, which is no fault of its trial: such an end
            does not count among those after which a trial fails.
    """
    with study.locked():
        lost = [
            trial
            for trial in _running(study)
            if is_claimed(trial) and trial.user_attrs["worker"] == worker
        ]
        for trial in lost:
            if with_its_driver:
                put_in_queue(study, trial._trial_id)
            else:
                _lose(study, trial)
    return lost


def put_in_queue(study: Study, trial_id: int) -> None:
    """Let a running trial wait for the next worker; the caller holds the study's lock."""
    study.storage.set_trial_user_attr(trial_id, "claim", "")
    study.storage.set_trial_state_values(trial_id, TrialState.WAITING)


def _running(study: Study) -> list[FrozenTrial]:
    return study.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def _lose(study: Study, trial: FrozenTrial) -> None:
    """Queue a trial whose worker died, or fail it after STUDY.RETRIES continuations."""
    lost = {*trial.user_attrs.get("lost_claims", ()), trial.user_attrs["claim"]}
    study.storage.set_trial_user_attr(trial._trial_id, "lost_claims", sorted(lost))
    if len(lost) <= study.options.RETRIES:
        put_in_queue(study, trial._trial_id)
        return
    reason = f"its worker or a process of it died {len(lost)} times"
    study.storage.set_trial_user_attr(trial._trial_id, "reason", reason)
    study.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
