"""The driver of a study: creates it, starts and replaces its workers, and shows their progress.

Workers are processes on this machine, or run on a cluster by an executor.
"""

import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.errors import USER_ERROR, UserError
from zoerefine.base.machine.cores import share_cores
from zoerefine.base.machine.memory import GPU_WORKERS
from zoerefine.base.progress import say, warn
from zoerefine.base.run_dir import RUN_FOLDER, RunDir, run_from_launcher
from zoerefine.lab.launch.environment.environment import LIBRARY as CHECKOUT
from zoerefine.lab.launch.git.commands import checkout_commit, uncommitted_files
from zoerefine.lab.launch.process.child import StopForwarding, child_setup, kill_tree
from zoerefine.lab.launch.process.output import kept_log, last_line
from zoerefine.lab.launch.queue.executor import (
    NO_RESOURCES,
    Executor,
    ExecutorBusy,
    JobOutcome,
    Resources,
    open_executor,
)
from zoerefine.lab.launch.queue.job_queue import leave_to_cluster
from zoerefine.lab.launch.record.provenance import query_gpus
from zoerefine.lab.search.progress import study_progress
from zoerefine.lab.search.space.space import suggest
from zoerefine.lab.search.study.claims import requeue_trials_of
from zoerefine.lab.search.study.earlier import open_earlier
from zoerefine.lab.search.study.enqueue import enqueue, params_to_try, take_trials
from zoerefine.lab.search.study.storage import waits_for_run
from zoerefine.lab.search.study.study import Study, early_end, is_over
from zoerefine.lab.search.study.trials import format_values, is_known, settings_file, trial_run
from zoerefine.lab.search.subject import Subject


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


POLL_S = 0.1
ENDING_S = 3.0  # that the workers of a killed driver have to save their checkpoints
RESTARTS = 5  # times that a worker is replaced, on average over all workers


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
        subject.save(run)
        take_trials(study, sources)
        enqueue(study, tried_first)
        with open_workers(study, executor, resources) as workers:
            Driver(study, workers).drive()
        if reason := early_end(study):
            say(reason)
        publish_best(study)
    return run


def study_run(folder: Path) -> RunDir:
    """Where a study is written: in a launcher's run, or else in its own folder."""
    return run_from_launcher() or RunDir(folder)


# Starts a command from this tree, installed or not, whatever lies in the working directory.
PROGRAM = (
    f"import sys; sys.path[0] = {str(CHECKOUT)!r}; "
    "from zoerefine.cli import main; sys.exit(main(sys.argv[1:]))"
)


@dataclass
class WorkerTicket:
    """A worker process and its log."""

    process: "subprocess.Popen[bytes]"
    log: Path
    cancelled: bool = False


class LocalWorkers:
    """`count` workers on this machine; they share its cores, and each has some of its GPUs.

    Args:
        gpus: that all workers together may use.
        devices: GPUs of each worker, if there are so many.
        processes: that train a trial together.
    """

    keeps_jobs = False

    def __init__(
        self, run: RunDir, count: int, gpus: Sequence[str], devices: int = 1, processes: int = 1
    ) -> None:
        self.folder, self.gpus = run.path / "workers", gpus
        self.devices, self.processes = min(devices, len(gpus)), count * processes
        self.groups = len(gpus) // self.devices if gpus else 1
        self.on_a_gpu = math.ceil(count / self.groups)

    def submit(self, name: str, number: int, words: Sequence[str]) -> WorkerTicket:
        self.folder.mkdir(exist_ok=True)
        log = self.folder / f"{name}.log"
        with open(log, "ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "search", *words],
                env=self._environment(number),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=child_setup(),
                start_new_session=True,  # the driver forwards Ctrl-C, once
            )
        return WorkerTicket(process, log)

    def _environment(self, number: int) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != RUN_FOLDER}
        if self.processes > 1:
            share_cores(environment, self.processes)
        if self.gpus:
            environment[GPU_WORKERS] = str(self.on_a_gpu)
        if len(self.gpus) > 1:
            first = number % self.groups * self.devices
            chosen = self.gpus[first : first + self.devices]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
        return environment

    def poll(self, ticket: WorkerTicket) -> JobOutcome | None:
        code = ticket.process.poll()
        if code is None:
            return None
        return JobOutcome(128 - code if code < 0 else code, last_line(ticket.log))

    def cancel(self, ticket: WorkerTicket) -> None:
        if not ticket.cancelled:
            ticket.process.send_signal(signal.SIGINT)
        elif ticket.process.poll() is None:
            kill_tree(ticket.process.pid)  # its trial's job, too, which has a session of its own
        ticket.cancelled = True


def clean_commit() -> str:
    """This tree's commit, which nodes check out. Raises `UserError` for uncommitted changes."""
    commit = checkout_commit(CHECKOUT)
    if not commit or uncommitted_files(CHECKOUT):
        raise UserError(
            "a cluster's nodes check out a commit, and this tree has none or differs from it: "
            "commit your changes first"
        )
    return commit


class ClusterWorkers:
    """Workers that the launcher starts on a cluster's nodes, from the study's exact commit."""

    def __init__(self, run: RunDir, commit: str, executor: Executor) -> None:
        self.run, self.commit, self.executor = run, commit, executor
        self.keeps_jobs, self.poll, self.cancel = (
            executor.keeps_jobs,
            executor.poll,
            executor.cancel,
        )

    def submit(self, name: str, number: int, words: Sequence[str]) -> Any:
        launch = ["--repo", str(CHECKOUT), "--commit", self.commit, "--module",
                  "platform/search.py", "--config", str(settings_file(self.run)),
                  "--runs", str(self.run.path / "workers"), "--", *words]  # fmt: skip
        return self.executor.submit(launch, self.run.path / "workers" / f"slot-{number}")


def visible_gpus() -> list[str]:
    """The GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [one for one in chosen.split(",") if one]
    return query_gpus("index")


def refuse_too_few(gpus: Sequence[str], devices: int) -> None:
    """Raises `UserError` where there are GPUs, but fewer than STUDY.DEVICES."""
    if gpus and devices > len(gpus):
        raise UserError(f"STUDY.DEVICES is {devices}, and this machine has {len(gpus)} GPUs")


def worker_settings(settings: Mapping[str, Any], subject: Subject) -> dict[str, Any]:
    """The fields of `Resources` for a study's workers, where no option sets them.

    STUDY.DEVICES GPUs where it is more than one, and at least a core for each process.

    Args:
        settings: that the config sets.
    """
    found = {"gpus": 0.0, "cpus": 1, **settings}
    if subject.options.DEVICES > 1:
        found["gpus"] = found["gpus"] or float(subject.options.DEVICES)
    return found | {"cpus": max(found["cpus"], subject.processes)}


def refuse_unfit(resources: Resources, devices: int) -> None:
    """Raises `UserError` for several nodes, and for GPUs that are not STUDY.DEVICES."""
    if resources.nodes > 1:
        raise UserError(
            f"--nodes {resources.nodes} (CLUSTER.NODES): each worker of a search runs on one node; "
            "set --workers for how many run at a time"
        )
    if devices > 1 and resources.gpus not in (0, devices):
        raise UserError(f"--gpus {resources.gpus:g} and STUDY.DEVICES {devices} differ")


Workers = LocalWorkers | ClusterWorkers


@contextmanager
def open_workers(study: Study, executor: str, resources: Resources) -> Iterator[Workers]:
    """The place where workers are started: this machine, or a cluster."""
    devices, subject = study.options.DEVICES, study.subject
    refuse_unfit(resources, devices)
    commit = "" if executor == "local" else clean_commit()
    with open_executor(executor, resources) as opened:
        if commit:
            if subject.devices > 1:
                say(f"reserved for each worker: {resources.gpus:g} GPUs, {resources.cpus} cores")
            yield ClusterWorkers(study.run, commit, opened)
        else:
            gpus, count = visible_gpus(), study.options.WORKERS
            refuse_too_few(gpus, devices)
            yield LocalWorkers(study.run, count, gpus, subject.devices, subject.processes)


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
