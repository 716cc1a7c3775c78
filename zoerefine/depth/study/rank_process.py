"""One of the processes that train a run of a study together (`trial_processes.py`).

Rank 0 reports to the study.
"""

import argparse
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_text
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.study.processes import FAILURES
from zoerefine.lab.launch.process.child import PR_SET_PDEATHSIG
from zoerefine.lab.launch.process.ending import LOST_CONNECTION
from zoerefine.lab.search.subject import ClaimLost


def main(argv: Sequence[str]) -> int:
    """Train the run that the arguments name; returns the exit code."""
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
        split = read_split(run.split_file, dataset.scenes)
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
    from zoerefine.depth.study.trials import reporting
    from zoerefine.lab.search.study.claims import Claim
    from zoerefine.lab.search.study.study import Study
    from zoerefine.lab.search.subjects import open_subject
    from zoerefine.lab.search.workers.worker import Monitor

    opened = Study(open_subject(study), study)
    number, identifier = claim
    trials = opened.optuna.get_trials(deepcopy=False)
    trial = optuna.Trial(opened.optuna, trials[int(number)]._trial_id)
    known = measure_config(load_config(run.config_file), opened.criteria.measured)
    return reporting(opened.criteria, known, Monitor(opened, Claim(trial, {}, run, identifier)))


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
