"""The driver of a study: creates it, starts and replaces its workers, and shows their progress.

Workers are processes on this machine, or run on a cluster by an executor.
"""

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from zoerefine.base.errors import USER_ERROR, UserError
from zoerefine.base.messages import say, warn
from zoerefine.base.run_dir import RunDir, run_from_launcher
from zoerefine.lab.launch.process.child import StopForwarding
from zoerefine.lab.launch.process.output import kept_log
from zoerefine.lab.launch.queue.executor import NO_RESOURCES, ExecutorBusy, Resources
from zoerefine.lab.launch.queue.job_queue import leave_to_cluster
from zoerefine.lab.search.progress import study_progress
from zoerefine.lab.search.space.space import suggest
from zoerefine.lab.search.study.claims import requeue_trials_of
from zoerefine.lab.search.study.earlier import open_earlier
from zoerefine.lab.search.study.ending import early_end, is_over
from zoerefine.lab.search.study.enqueue import enqueue, params_to_try, take_trials
from zoerefine.lab.search.study.storage import waits_for_run
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import format_values, is_known, trial_run
from zoerefine.lab.search.subject import Subject
from zoerefine.lab.search.worker_pool import Workers, open_workers

POLL_S = 0.1
ENDING_S = 3.0  # that the workers of a killed driver have to save their checkpoints
RESTARTS = 5  # times that a worker is replaced, on average over all workers


def publish_best(study: Study) -> None:
    """Publish the best trial as `best`, or each point of the Pareto front as `pareto-<trial>`.

    Raises `UserError` where no trial was completed within the limits.
    """
    several = len(study.criteria.objectives) > 1
    for trial in study.best():
        name = f"pareto-{trial.number:04d}" if several else "best"
        source = f" ({trial.user_attrs['known_from']['run']})" if is_known(trial) else ""
        say(f"{name}: trial {trial.number}{source}, {format_values(trial.user_attrs['figures'])}; "
            f"{format_values(trial.params)}")  # fmt: skip
        values = suggest(study.space, trial)  # type: ignore[arg-type]  # it has all parameters
        study.subject.publish(study.run, name, values)


def run_study(
    subject: Subject,
    enqueued: Sequence[Path] = (),
    executor: str = "local",
    resources: Resources = NO_RESOURCES,
    earlier: Sequence[Path] = (),
) -> RunDir:
    """Run the remaining trials, then what STUDY.THEN says; returns the study's run.

    Args:
        subject: what is searched.
        enqueued: configs, or runs of other studies, whose values are tried first.
        executor: where workers run, a name of `registries.EXECUTORS`.
        resources: what a cluster reserves for each worker.
        earlier: runs of studies whose trials are known here.

    Raises:
        UserError: the study belongs to another commit or configuration; there is nothing to
            search, or no validation scene; all first trials failed, or workers keep dying;
            torchrun has started several drivers.
        KeyboardInterrupt: a signal asked to stop; the same command resumes the study.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise UserError("a search starts its own processes: set STUDY.DEVICES, not --processes")
    run = study_run(subject.folder)
    sources = [open_earlier(path, subject, run) for path in earlier]
    tried_first = params_to_try(subject, enqueued)
    study = Study(subject, run)  # first: it may belong to another configuration
    if run_from_launcher() is None:
        say(f"writing to {run.path}")
    with run.writing(), kept_log(run):
        study.bind_data()
        warn_of_other_folders(study)
        subject.save(run)
        take_trials(study, sources)
        enqueue(study, tried_first)
        with open_workers(study, executor, resources) as workers:
            Driver(study, workers).drive()
        if reason := early_end(study):
            say(reason)
        publish_best(study)
    return run


def warn_of_other_folders(study: Study) -> None:
    """Name ended trials that have no run here, as where a database is shared with others."""
    ended = [one for one in study.trials() if one.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    own = [one for one in ended if not is_known(one)]
    others = sum(not trial_run(study.run, one.number).path.exists() for one in own)
    if others:
        warn(
            f"{others} of {len(own)} ended trials of study {study.name} in {study.url} have no run "
            f"in {study.run.path}: they ran in another folder, or it was removed; another "
            f"{study.subject.name_key} begins anew"
        )


def study_run(folder: Path) -> RunDir:
    """Where a study is written: in a launcher's run, or else in its own folder."""
    return run_from_launcher() or RunDir(folder)


@dataclass
class WorkerSlot:
    """One of STUDY.WORKERS places, and the worker that runs in it now.

    Attributes:
        is_due: whether a worker is to be started, which a cluster does not take for now.
    """

    number: int
    name: str = ""
    ticket: Any = None
    is_due: bool = False


class Driver:
    """Keeps a study's workers running until the study is over."""

    def __init__(self, study: Study, workers: Workers) -> None:
        self.study, self.workers = study, workers
        options = study.options
        self.until = time.time() + options.TIMEOUT_S if options.TIMEOUT_S else 0.0
        self.slots = [WorkerSlot(number) for number in range(options.WORKERS)]
        self.restarts = RESTARTS * options.WORKERS
        self.stops = StopForwarding(self._stop)

    def drive(self) -> None:
        """Run until every worker has found nothing left to do."""
        # Of an earlier driver of this study, by their logs.
        for name in {path.stem for path in (self.study.run.path / "workers").glob("*.log")}:
            for trial in requeue_trials_of(self.study, name, with_its_driver=True):
                self._say_what_it_waits_for(trial.number)
        with self.stops, study_progress(self.study, self.until) as refresh:
            for slot in self.slots:
                self._start(slot)
            while any(slot.ticket or slot.is_due for slot in self.slots):
                for slot in self.slots:
                    self._check(slot)
                    if slot.is_due and (self.stops.count or self._is_over()):
                        slot.is_due = False
                    elif slot.is_due:
                        self._start(slot)
                refresh()
                time.sleep(POLL_S)
        if self.stops.count:
            raise KeyboardInterrupt

    def _say_what_it_waits_for(self, number: int) -> None:
        """Print which process keeps a trial from going on, if one does."""
        run = trial_run(self.study.run, number)
        end = time.monotonic() + ENDING_S
        while run.status().state == "running":
            if time.monotonic() > end:
                warn(f"trial {number} cannot go on yet: {waits_for_run(run)}")
                return
            time.sleep(POLL_S)

    def _start(self, slot: WorkerSlot) -> None:
        slot.name = f"{slot.number}-{uuid.uuid4().hex[:8]}"
        words = ["--join", str(self.study.run.path), "--worker", slot.name]
        if self.until:
            words += ["--until", str(self.until)]
        with self.stops.held():
            slot.is_due = not self.stops.count and not self._submit(slot, words)

    def _submit(self, slot: WorkerSlot, words: Sequence[str]) -> bool:
        """Whether a worker was started, or never can be: then the others go on without it."""
        try:
            slot.ticket = self.workers.submit(slot.name, slot.number, words)
        except ExecutorBusy:
            return False
        except UserError as error:
            if not any(other.ticket for other in self.slots):
                raise
            warn(f"a worker cannot be started: {error}")
        return True

    def _check(self, slot: WorkerSlot) -> None:
        """If the worker died, replace it and put its trial in the queue."""
        outcome = self.workers.poll(slot.ticket) if slot.ticket else None
        if outcome is None:
            return
        slot.ticket = None
        if self.stops.count:
            return
        if outcome.code == 0:
            if not self._is_over():  # an earlier driver's worker, with a smaller budget
                self._start(slot)
            return
        requeue_trials_of(self.study, slot.name)
        if outcome.code == USER_ERROR:
            self._stop_all()
            raise UserError(outcome.message.removeprefix("error: "))
        self.restarts -= 1
        if self.restarts < 0:
            self._stop_all()
            raise UserError(
                f"workers keep dying, the last with exit code {outcome.code}: {outcome.message} "
                f"(see {self.study.run.path / 'workers'})"
            )
        say(f"worker {slot.name} died with exit code {outcome.code}: another is started")
        self._start(slot)

    def _is_over(self) -> bool:
        return is_over(self.study) or bool(self.until and time.time() >= self.until)

    def _stop(self, number: int, _: int) -> None:
        """Pass a stop signal on, or leave workers to a cluster that keeps them."""
        leave_to_cluster(self.workers.keeps_jobs, number)
        self._cancel_all()

    def _stop_all(self) -> None:
        """Ask every worker to stop, and wait until all have."""
        self._cancel_all()
        for slot in self.slots:
            while slot.ticket and self.workers.poll(slot.ticket) is None:
                time.sleep(POLL_S)
            slot.ticket = None

    def _cancel_all(self) -> None:
        """Ask every worker to save a checkpoint and stop; a second call kills them."""
        for slot in self.slots:
            if slot.ticket:
                self.workers.cancel(slot.ticket)
