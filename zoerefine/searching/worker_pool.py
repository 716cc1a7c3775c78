"""Where a study's workers run: as processes on this machine, or on a cluster by an executor."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from zoerefine.errors import UserError
from zoerefine.launch.child_process import child_setup
from zoerefine.launch.executor import Executor, JobOutcome
from zoerefine.launch.git_commands import head_commit, uncommitted_files
from zoerefine.launch.process_tree import kill_tree
from zoerefine.launch.python_path import LIBRARY as CHECKOUT
from zoerefine.launch.queue_table import last_line
from zoerefine.processor_use import share_cores
from zoerefine.run_dir import RUN_FOLDER, RunDir
from zoerefine.searching.trial_record import settings_file

SCRIPT = CHECKOUT / "platform" / "search.py"


class Workers(Protocol):
    """Starts, polls and cancels workers, as an executor does jobs."""

    @property
    def keeps_jobs(self) -> bool:
        """Whether workers go on when their driver has ended."""

    def submit(self, name: str, number: int, words: Sequence[str]) -> Any:
        """Start a worker and return its ticket. Raises like `Executor.submit`."""

    def poll(self, ticket: Any) -> JobOutcome | None:
        """How a worker ended, or None while it runs."""

    def cancel(self, ticket: Any) -> None:
        """Ask a worker to save a checkpoint and stop; a second call kills it."""


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

    def submit(self, name: str, number: int, words: Sequence[str]) -> WorkerTicket:
        self.folder.mkdir(exist_ok=True)
        log = self.folder / f"{name}.log"
        with open(log, "ab") as file:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *words],
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
        if len(self.gpus) > 1:
            groups = len(self.gpus) // self.devices
            first = number % groups * self.devices
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
    commit = head_commit(CHECKOUT)
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

    @property
    def keeps_jobs(self) -> bool:
        return self.executor.keeps_jobs

    def submit(self, name: str, number: int, words: Sequence[str]) -> Any:
        launch = ["--repo", str(CHECKOUT), "--commit", self.commit, "--module",
                  "platform/search.py", "--config", str(settings_file(self.run)),
                  "--runs", str(self.run.path / "workers"), "--", *words]  # fmt: skip
        return self.executor.submit(launch, self.run.path / "workers" / f"slot-{number}")

    def poll(self, ticket: Any) -> JobOutcome | None:
        return self.executor.poll(ticket)

    def cancel(self, ticket: Any) -> None:
        self.executor.cancel(ticket)
