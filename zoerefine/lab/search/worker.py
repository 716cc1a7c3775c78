"""A worker: a process that runs one trial of a study after another until none is left."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial

from optuna.trial import TrialState

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.messages import say
from zoerefine.base.registries import OWN_TRAINING
from zoerefine.base.run_dir import RunDir
from zoerefine.base.threads import repeating
from zoerefine.lab.search.script.study import open_study
from zoerefine.lab.search.space.checks import check_sampler
from zoerefine.lab.search.study import claims
from zoerefine.lab.search.study.storage import waits_for_run
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import format_values, settings_file
from zoerefine.lab.search.subject import ClaimLost, NoSuchMetric, Subject, TrialRunner

POLL_S = 0.5  # between looks at a study in which others still run, or at a run that is locked


def run_worker(run: RunDir, name: str, until: float = 0.0) -> None:
    """Run trials of the study in `run` until all have ended.

    Args:
        run: a study's run directory, made by its driver.
        name: of this worker, unlike any other's.
        until: no trial begins after this time, seconds since the epoch; 0: no limit.

    Raises:
        UserError: there is no study, its config or database cannot be used, or its first trials
            all failed.
        KeyboardInterrupt: a signal asked to stop; another worker can continue the trial.
    """
    study = Study(open_subject(run), run)
    check_sampler(study.options, study.space)  # this machine may lack a package
    study.bind_data()
    # A cluster restarts a worker under the same name when its node has died.
    claims.requeue_trials_of(study, name)
    worker = Worker(study, study.subject.runner(run))
    while not until or time.time() < until:
        claim = claims.claim_trial(study, name)
        if claim is not None:
            worker.run_trial(claim)
        elif study.is_idle():
            return
        else:  # a running trial may still lose its worker
            time.sleep(POLL_S)


def open_subject(run: RunDir) -> Subject:
    """Our own training or a launched script. Raises `UserError` where there is no study."""
    if settings_file(run) != run.config_file:
        return open_study(run)
    if not run.config_file.exists():
        raise UserError(f"{run.path} is not a study: give the folder that a search wrote")
    subject: Subject = OWN_TRAINING.load("subject")(load_config(run.config_file))
    return subject


class Worker:
    """Runs the trials that it claims."""

    def __init__(self, study: Study, runner: TrialRunner) -> None:
        self.study, self.runner = study, runner

    def run_trial(self, claim: claims.Claim) -> None:
        """Run one trial, and record its figures or why it failed.

        Raises `NoSuchMetric` where no trial has had the searched metric yet.
        """
        say(f"trial {claim.number}: {format_values(claim.values)}")
        try:
            with heartbeat(self.study, claim):
                self._run(claim)
        except KeyboardInterrupt:
            claims.put_back(self.study, claim)
            raise
        except ClaimLost:
            say(f"trial {claim.number} was taken over by another worker")
        except NoSuchMetric as error:
            if any(one.state == TrialState.COMPLETE for one in self.study.trials()):
                self._fail(claim, error)
            else:  # it is misspelled; the trial waits for a search with the right name
                claims.put_back(self.study, claim)
                raise
        except Exception as error:  # a failed trial does not stop the others
            self._fail(claim, error)

    def _fail(self, claim: claims.Claim, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        say(f"trial {claim.number} failed: {reason}")
        with suppress(ClaimLost):
            claims.fail(self.study, claim, reason)

    def _run(self, claim: claims.Claim) -> None:
        monitor = Monitor(self.study, claim)
        if claim.run.status().state == "running":
            say(f"trial {claim.number} waits: {waits_for_run(claim.run)}")
        while claim.run.status().state == "running":  # locked by a worker that counted as dead
            monitor.check_held()
            time.sleep(POLL_S)
        outcome = self.runner(claim.run, claim.values, monitor)
        end = claims.prune if outcome.reason else claims.complete
        end(self.study, claim, outcome)
        say(f"trial {claim.number}: {outcome.reason or format_values(outcome.figures)}")


class Monitor:
    """What a running trial reports to its study: see `TrialMonitor`."""

    def __init__(self, study: Study, claim: claims.Claim) -> None:
        self.study, self.claim = study, claim
        self.known: Mapping[str, float] = {}

    @property
    def claim_words(self) -> Sequence[str]:
        return str(self.claim.number), self.claim.id

    def check_held(self) -> None:
        if not claims.is_held(self.study, self.claim):
            raise ClaimLost

    def is_pruned(self, step: int, figures: Mapping[str, float]) -> bool:
        self.check_held()
        is_measured = self.study.criteria.objectives[0] in figures  # else no trial is pruned
        found = {**self.known, **figures} if is_measured else {}
        return self.study.is_pruned(self.claim.trial, step, found)


def heartbeat(study: Study, claim: claims.Claim) -> AbstractContextManager[None]:
    """Record every STUDY.HEARTBEAT_S, from a thread, that this trial's worker is alive."""
    send = partial(study.storage.record_heartbeat, claim.trial._trial_id)
    return repeating(send, study.options.HEARTBEAT_S)
