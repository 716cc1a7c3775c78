"""Where a study's workers run: as processes on this machine, or on a cluster by an executor; and
what each may use: GPUs of this machine, or what it reserves on the cluster.
"""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.machine.cores import share_cores
from zoerefine.base.machine.memory import GPU_WORKERS
from zoerefine.base.messages import say
from zoerefine.base.run_dir import RUN_FOLDER, RunDir
from zoerefine.lab.launch.git.changes import uncommitted_files
from zoerefine.lab.launch.git.commands import checkout_commit
from zoerefine.lab.launch.process.child import child_setup, kill_tree
from zoerefine.lab.launch.process.output import last_line
from zoerefine.lab.launch.queue.executor import Executor, JobOutcome, Resources, open_executor
from zoerefine.lab.launch.record.provenance import query_gpus
from zoerefine.lab.launch.variables import OWN_FOLDER
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import settings_file
from zoerefine.lab.search.subject import Subject

# Starts a command from this tree, installed or not, whatever lies in the working directory.
PROGRAM = (
    f"import sys; sys.path[0] = {str(OWN_FOLDER)!r}; "
    "from zoerefine.cli import main; sys.exit(main(sys.argv[1:]))"
)


@dataclass(frozen=True)
class MachineShares:
    """Workers on this machine share its cores, and each has some of its GPUs.

    Attributes:
        count: of the workers.
        gpus: that all workers together may use.
        devices: GPUs of each worker, if there are so many.
        processes: that train a trial together.
    """

    count: int
    gpus: Sequence[str]
    devices: int = 1
    processes: int = 1

    def environment(self, number: int) -> dict[str, str]:
        """The variables of a worker."""
        environment = {name: value for name, value in os.environ.items() if name != RUN_FOLDER}
        if self.count * self.processes > 1:
            share_cores(environment, self.count * self.processes)
        if self.gpus:
            devices = min(self.devices, len(self.gpus))
            groups = len(self.gpus) // devices
            environment[GPU_WORKERS] = str(math.ceil(self.count / groups))
            if len(self.gpus) > 1:
                first = number % groups * devices
                chosen = self.gpus[first : first + devices]
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
        return environment


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


def visible_gpus(devices: int) -> list[str]:
    """The GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them.

    Raises `UserError` where there are some, but fewer than `devices`, which STUDY.DEVICES is.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = query_gpus("index") if chosen is None else [*filter(None, chosen.split(","))]
    if gpus and devices > len(gpus):
        raise UserError(f"STUDY.DEVICES is {devices}, and this machine has {len(gpus)} GPUs")
    return gpus


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
