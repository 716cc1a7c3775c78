"""Trains a run of a study in several processes, one for each of STUDY.DEVICES.

The worker holds the trial and the lock of its run. It starts the processes by torchrun and waits
for them. Each runs this file as a program, and rank 0 reports to the study. A process that fails
ends the training, not the worker.

A run never has two writers: torchrun keeps the run's lock where its worker is killed, and ends the
processes. Where torchrun itself is killed, the system kills them.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from zoerefine.base.errors import KILLED, UserError
from zoerefine.base.files.atomic import write_text
from zoerefine.base.machine.cores import share_cores
from zoerefine.base.messages import say
from zoerefine.base.run_dir import RUN_FOLDER, RunDir
from zoerefine.lab.launch.process.child import (
    PR_SET_PDEATHSIG,
    StopForwarding,
    child_setup,
    interrupt,
    stop_group,
)
from zoerefine.lab.launch.process.end_reason import LOST_CONNECTION
from zoerefine.lab.launch.process.torchrun import end_processes, torchrun_words
from zoerefine.lab.launch.variables import OWN_FOLDER, python_path
from zoerefine.lab.search.subject import ClaimLost, TrialMonitor

PROGRAM = "zoerefine.depth.study.processes"
FAILURES = ".failure-of-rank-{}"  # in the run: why a process failed


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
    command = [sys.executable, *torchrun_words(processes), "-m", PROGRAM]
    command += [str(study.path), str(run.path), *(["--test"] if test else [])]
    command += ["--claim", *(monitor.claim_words if monitor else ())]
    end_processes(run)  # of a worker that was killed together with its torchrun
    take_failure(run)
    path = python_path(os.environ, OWN_FOLDER)
    environment = os.environ | {RUN_FOLDER: str(run.path), "PYTHONPATH": path}
    share_cores(environment, processes)  # with one another
    code, stopped = run_to_end(command, environment, lock_fd)
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


def main(argv: Sequence[str]) -> int:
    """As one of the processes, train the run that the arguments name; returns the exit code."""
    # Killed with torchrun, which alone keeps the run's lock. A checkpoint is whole at any moment.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parser = argparse.ArgumentParser()
    parser.add_argument("study", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--claim", nargs="*", default=[])
    args = parser.parse_args(argv)
    run = RunDir(args.run)
    try:
        train_here(RunDir(args.study), run, args.claim, args.test)
    except KeyboardInterrupt:
        return 130
    except ClaimLost:  # its worker finds that, too
        return 1
    except Exception as error:
        if not isinstance(error, UserError):
            traceback.print_exc()
        if LOST_CONNECTION.search(str(error)):  # its message, or its death, says why
            return 1
        with suppress(OSError):
            name = FAILURES.format(os.environ.get("RANK", "0"))
            write_text(run.path / name, str(error) or type(error).__name__)
        return 1
    return 0


def train_here(study: RunDir, run: RunDir, claim: Sequence[str], test: bool) -> None:
    """Train as one of the processes; all of them call this."""
    from zoerefine.base.config import load_config
    from zoerefine.base.ranks import is_writer, process_group, world_size
    from zoerefine.depth.data.split import read_split
    from zoerefine.depth.training.job import find_data, pack
    from zoerefine.depth.training.loop import train
    from zoerefine.lab.launch.record import provenance

    with process_group():
        cfg, shared = load_config(run.config_file), load_config(study.config_file)
        dataset, _ = find_data(shared)  # all trials have the study's data
        split = replace(read_split(run.split_file, dataset.scenes), file_digest="")  # of the run
        report = None
        if is_writer():
            provenance.add(run, processes=world_size())
            report = report_to(study, run, claim) if claim else None
        train(cfg, run, pack(shared, dataset), split, report, test)


def report_to(study: RunDir, run: RunDir, claim: Sequence[str]) -> Any:
    """The function that reports to the trial of a claim; see `training.loop.train`."""
    import optuna

    from zoerefine.base.config import load_config
    from zoerefine.depth.study.objectives import measure_config
    from zoerefine.lab.search.study.claims import Claim
    from zoerefine.lab.search.study.study import Study
    from zoerefine.lab.search.worker import Monitor, open_subject

    opened = Study(open_subject(study), study)
    number, identifier = claim
    trials = opened.optuna.get_trials(deepcopy=False)
    trial = optuna.Trial(opened.optuna, trials[int(number)]._trial_id)
    monitor = Monitor(opened, Claim(trial, {}, run, identifier))
    monitor.known = measure_config(load_config(run.config_file), opened.criteria.measured)
    return monitor.is_pruned


def end_process(code: int) -> NoReturn:
    """End this process without the interpreter's shutdown, once everything is written.

    After a training with gloo that shutdown has been seen to abort ("terminate called without an
    active exception"). torchrun then takes the finished training for a failed one.
    """
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
