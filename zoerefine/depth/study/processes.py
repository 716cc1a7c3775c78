"""Trains a run of a study in several processes, one for each of STUDY.DEVICES.

The worker holds the trial and the lock of its run. It starts the processes (`rank_process.py`) by
torchrun and waits for them. A process that fails ends the training, not the worker.

A run never has two writers: torchrun keeps the run's lock where its worker is killed, and ends the
processes. Where torchrun itself is killed, the system kills them.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.machine.cores import share_cores
from zoerefine.base.progress import say
from zoerefine.base.run_dir import RUN_FOLDER, RunDir
from zoerefine.lab.launch.environment.variables import LIBRARY, python_path
from zoerefine.lab.launch.process.child import child_setup, interrupt, stop_group
from zoerefine.lab.launch.process.stops import StopForwarding
from zoerefine.lab.launch.process.tree import end_processes, job_command
from zoerefine.lab.search.subject import KILLED, TrialMonitor

PROGRAM = "zoerefine.depth.study.rank_process"
FAILURES = ".failure-of-rank-{}"  # in the run: why a process failed

Training = Callable[[RunDir, bool, int], dict[str, Any]]


def in_processes(
    study: RunDir, processes: int, monitor: TrialMonitor | None = None
) -> Training | None:
    """What trains a run of a study in several processes; None where this process trains."""
    return partial(train_in_processes, study, processes, monitor) if processes > 1 else None


def train_in_processes(
    study: RunDir,
    processes: int,
    monitor: TrialMonitor | None,
    run: RunDir,
    test: bool,
    lock_fd: int,
) -> dict[str, Any]:
    """Train the config and split in `run`, whose lock the caller holds; returns the results.

    Args:
        monitor: of the trial; None for a best config.
        test: whether to evaluate on the test scenes at the end.
        lock_fd: the descriptor of the lock.

    Raises:
        UserError: the training failed; the message is that of the process that failed first.
        ClaimLost: another worker has the trial now.
        KeyboardInterrupt: a signal stopped it; a checkpoint has been written.
        SystemExit: a process was killed; as if this one was, another worker can go on.
    """
    command = job_command(Path(sys.executable), ["-m", PROGRAM], processes)
    command += [str(study.path), str(run.path), *(["--test"] if test else [])]
    command += ["--claim", *(monitor.claim_words if monitor else ())]
    end_processes(run)  # of a worker that was killed together with its torchrun
    take_failure(run)
    code, stopped = run_to_end(command, process_variables(run, processes), lock_fd)
    end_processes(run)
    failure = take_failure(run)
    if stopped:
        raise KeyboardInterrupt
    if code and monitor:
        monitor.check_held()
    if failure:
        raise UserError(failure)
    if code:
        say(f"the training's processes were killed or lost each other: torchrun exited with {code}")
        raise SystemExit(KILLED)
    return run.results()


def process_variables(run: RunDir, processes: int) -> dict[str, str]:
    """The environment of the processes; they share the cores of this one."""
    path = python_path(os.environ, LIBRARY)
    environment = os.environ | {RUN_FOLDER: str(run.path), "PYTHONPATH": path}
    share_cores(environment, processes)
    return environment


def run_to_end(
    command: Sequence[str], environment: Mapping[str, str], lock_fd: int
) -> tuple[int, bool]:
    """Run torchrun, and pass stop signals on; its exit code, and whether a signal came."""
    with StopForwarding(interrupt) as stops:
        with stops.held():
            child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
                pass_fds=(lock_fd,), preexec_fn=child_setup(),
            )  # fmt: skip
            stops.forward = partial(stop_group, child)
        return child.wait(), stops.count > 0


def take_failure(run: RunDir) -> str:
    """Remove the messages of failed processes; returns the first one."""
    paths = sorted(run.path.glob(FAILURES.format("*")), key=lambda path: path.stat().st_mtime_ns)
    messages = [path.read_text(encoding="utf-8") for path in paths]
    for path in paths:
        path.unlink()
    return messages[0] if messages else ""
