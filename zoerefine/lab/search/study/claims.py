"""Which worker runs which trial: it claims the trial, holds it, and ends it or puts it back.

A claim is taken and ended while the study is locked, so two workers never have the same trial,
and exactly as many trials begin as are planned.
"""

import shutil
import textwrap
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from zoerefine.base.files.atomic import replacing
from zoerefine.base.files.file_lock import is_locked
from zoerefine.base.run_dir import RunDir
from zoerefine.base.secrets import hide_secrets
from zoerefine.lab.search.space.space import Values
from zoerefine.lab.search.study.ending import may_begin, refuse_if_all_failed
from zoerefine.lab.search.study.next_trial import next_trial
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import (
    has_begun,
    is_claimed,
    trial_run,
)
from zoerefine.lab.search.subject import ClaimLost, TrialOutcome

# Trials that lost their worker: they wait under their own number for another to continue them.
#
# A worker may be killed between any two lines here; the next call then does the rest.


def requeue_lost_trials(study: Study) -> None:
    """Put trials in the queue whose workers are gone; the caller holds the study's lock."""
    # Optuna's own `fail_stale_trials` would end such a trial, and only a new number could
    # continue it.
    stale = study.storage._get_stale_trial_ids(study.optuna._study_id)
    for trial in _running(study):
        if not is_claimed(trial):  # its worker died while it claimed: we hold the lock now
            put_in_queue(study, trial._trial_id)
        elif trial._trial_id not in stale:
            continue
        elif is_locked(trial_run(study.run, trial.number).lock_file):
            put_in_queue(study, trial._trial_id)  # late, not dead: stopped, or a clock jumped
        else:
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


@dataclass(frozen=True)
class Claim:
    """A trial that this worker runs: its values and its run directory."""

    trial: optuna.Trial
    values: Values
    run: RunDir
    id: str

    @property
    def number(self) -> int:
        return self.trial.number


def claim_trial(study: Study, worker: str) -> Claim | None:
    """Claim the next trial: an unfinished one whose worker is gone, a queued one, or a new one.

    Returns None where no trial is left to begin, though others may still run. A trial that has
    begun is finished in any case. Raises `UserError` where the first trials all failed.
    """
    with study.locked():
        requeue_lost_trials(study)
        trials = study.trials()
        refuse_if_all_failed(trials)
        # They come first in the queue, since all trials begin in the order of their numbers.
        interrupted = any(one.state == TrialState.WAITING and has_begun(one) for one in trials)
        if not interrupted and not may_begin(study, trials):
            return None
        found = next_trial(study)
        if found is None:
            return None
        trial, values = found
        claim = Claim(trial, values, trial_run(study.run, trial.number), uuid.uuid4().hex)
        study.storage.record_heartbeat(trial._trial_id)
        trial.set_user_attr("worker", worker)
        trial.set_user_attr("claim", claim.id)  # last: without it, the trial has not started
        return claim


def is_held(study: Study, claim: Claim) -> bool:
    """Whether the trial is still this worker's."""
    trial = study.storage.get_trial(claim.trial._trial_id)
    return trial.state == TrialState.RUNNING and trial.user_attrs.get("claim") == claim.id


def complete(study: Study, claim: Claim, outcome: TrialOutcome) -> None:
    """Record the figures of a trial that ran to its end. Raises `ClaimLost`."""
    values = [outcome.figures[name] for name in study.criteria.objectives]
    _end(study, claim, TrialState.COMPLETE, outcome, values)


def prune(study: Study, claim: Claim, outcome: TrialOutcome) -> None:
    """Record that a trial was stopped early. Raises `ClaimLost`."""
    _end(study, claim, TrialState.PRUNED, outcome)


def fail(study: Study, claim: Claim, reason: str) -> None:
    """Record that a trial failed, and would fail again. Raises `ClaimLost`."""
    _end(study, claim, TrialState.FAIL, TrialOutcome({}, reason))


def put_back(study: Study, claim: Claim) -> None:
    """Let the next worker continue a trial that was interrupted."""
    with study.locked():
        if is_held(study, claim):
            put_in_queue(study, claim.trial._trial_id)


def _end(
    study: Study,
    claim: Claim,
    state: TrialState,
    outcome: TrialOutcome,
    values: Sequence[float] | None = None,
) -> None:
    if not is_held(study, claim):
        raise ClaimLost
    try:
        _write_facts(study, claim, outcome)
    except optuna.exceptions.UpdateFinishedTrialError as error:
        raise ClaimLost from error
    with study.locked():
        if not is_held(study, claim):
            raise ClaimLost
        study.optuna.tell(claim.trial, values, state)


def _write_facts(study: Study, claim: Claim, outcome: TrialOutcome) -> None:
    """Write figures, reason and note; a finished trial accepts none."""
    if outcome.figures:
        claim.trial.set_user_attr("figures", dict(outcome.figures))
    for name, excess in study.criteria.excess(outcome.figures).items():
        claim.trial.set_constraint(name, excess)
    if outcome.reason:
        claim.trial.set_user_attr("reason", outcome.reason)
    describe(study.optuna, claim.trial, claim.run, outcome.note, study.run.path / "artifacts")


# What the dashboard shows for a trial: a note with its outcome, and its validation picture.


def describe(
    study: optuna.Study, trial: optuna.Trial, run: RunDir, details: str, artifacts: Path
) -> None:
    """Write a trial's note, and attach its run's validation picture where there is one.

    Without the dashboard's package there is no note.

    Call it after the run has ended and before the trial's state is set: a finished trial accepts
    no artifacts. A second call replaces the note and the picture of the first.

    Args:
        study: the trial's study.
        trial: a running trial; its attribute `reason` says why it failed or was pruned.
        run: the trial's run directory, in any state.
        details: how it ended and what was measured, in Markdown; empty where it failed.
        artifacts: the folder of the study's `FileSystemArtifactStore`.
    """
    with suppress(ModuleNotFoundError):  # a study needs no dashboard
        from optuna_dashboard import save_note  # much is loaded with it; drivers write no notes

        identity = study.user_attrs.get("identity", {})
        save_note(trial, hide_secrets(note(run, trial.user_attrs, identity.get("commit"), details)))
    if run.validation_picture.exists():
        attach(trial, run.validation_picture, artifacts)


def note(run: RunDir, attributes: Mapping[str, Any], commit: str | None, details: str) -> str:
    """A trial's note in Markdown: how its run ended, its metrics, why, its run and commit."""
    status = run.status()
    reason = attributes.get("reason") or status.reason
    deaths = len(attributes.get("lost_claims", ()))
    parts = [
        details or (f"**{status.state}**" if run.status_file.exists() else "**not started**"),
        textwrap.indent(reason, "    "),  # verbatim, without markup
        f"continued by another worker after {deaths} of its workers died" if deaths else "",
        f"run `{run.path}`, commit `{commit or 'unknown'}`",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def attach(trial: optuna.Trial, picture: Path, artifacts: Path) -> None:
    """Make a picture the trial's only artifact of its name, even if an earlier call was killed."""
    from optuna.artifacts import FileSystemArtifactStore, get_all_artifact_meta, upload_artifact

    artifacts.mkdir(parents=True, exist_ok=True)
    known = [
        meta.artifact_id for meta in get_all_artifact_meta(trial) if meta.filename == picture.name
    ]
    if not known:
        store = FileSystemArtifactStore(artifacts)
        upload_artifact(artifact_store=store, file_path=str(picture), study_or_trial=trial)
        return
    with replacing(artifacts / known[0]) as temporary:  # killed between naming and writing it
        shutil.copyfile(picture, temporary)
