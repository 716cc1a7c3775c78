"""Where a study's workers run: as processes on this machine, or on a cluster by an executor."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.messages import say
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.git.changes import uncommitted_files
from zoerefine.lab.launch.git.commands import checkout_commit
from zoerefine.lab.launch.process.child import child_setup, kill_tree
from zoerefine.lab.launch.process.output import last_line
from zoerefine.lab.launch.queue.executor import Executor, JobOutcome, Resources, open_executor
from zoerefine.lab.launch.variables import OWN_FOLDER
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import settings_file
from zoerefine.lab.search.worker_resources import MachineShares, refuse_unfit, visible_gpus

# Starts a command from this tree, installed or not, whatever lies in the working directory.
PROGRAM = (
    f"import sys; sys.path[0] = {str(OWN_FOLDER)!r}; "
    "from zoerefine.cli import main; sys.exit(main(sys.argv[1:]))"
)


@dataclass
class WorkerTicket:
    """A worker process and its log."""

    process: "subprocess.Popen[bytes]"
    log: Path
    cancelled: bool = False


class LocalWorkers:
    """Workers on this machine, which share it."""

    keeps_jobs = False

    def __init__(self, run: RunDir, shares: MachineShares) -> None:
        self.folder, self.shares = run.path / "workers", shares

    def submit(self, name: str, number: int, words: Sequence[str]) -> WorkerTicket:
        self.folder.mkdir(exist_ok=True)
        log = self.folder / f"{name}.log"
        with open(log, "ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "search", *words],
                env=self.shares.environment(number),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=child_setup(),
                start_new_session=True,  # the driver forwards Ctrl-C, once
            )
        return WorkerTicket(process, log)

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
    commit = checkout_commit(OWN_FOLDER)
    if not commit or uncommitted_files(OWN_FOLDER):
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
        launch = ["--repo", str(OWN_FOLDER), "--commit", self.commit, "--module",
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
            count, gpus = study.options.WORKERS, visible_gpus(devices)
            shares = MachineShares(count, gpus, subject.devices, subject.processes)
            yield LocalWorkers(study.run, shares)
