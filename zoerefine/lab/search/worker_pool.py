"""Where a study's workers run: as processes on this machine, or on a cluster by an executor."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.machine.memory import GPU_WORKERS
from zoerefine.base.machine.openmp import share_cores
from zoerefine.base.messages import say
from zoerefine.base.run_dir import RUN_FOLDER, RunDir
from zoerefine.lab.launch.git.changes import uncommitted_files
from zoerefine.lab.launch.git.commands import checkout_commit
from zoerefine.lab.launch.process.child import child_setup, kill_tree
from zoerefine.lab.launch.process.output import last_line
from zoerefine.lab.launch.queue.executor import Executor, JobOutcome, Resources, open_executor
from zoerefine.lab.launch.variables import LIBRARY as CHECKOUT
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import settings_file
from zoerefine.lab.search.worker_resources import refuse_too_few, refuse_unfit, visible_gpus

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
        self.keeps_jobs = executor.keeps_jobs
        self.poll, self.cancel = executor.poll, executor.cancel

    def submit(self, name: str, number: int, words: Sequence[str]) -> Any:
        launch = ["--repo", str(CHECKOUT), "--commit", self.commit, "--module",
                  "platform/search.py", "--config", str(settings_file(self.run)),
                  "--runs", str(self.run.path / "workers"), "--", *words]  # fmt: skip
        return self.executor.submit(launch, self.run.path / "workers" / f"slot-{number}")


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
