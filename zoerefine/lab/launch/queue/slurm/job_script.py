"""What Slurm is given for a job: its script, the options of sbatch, and the variables.

No word of a user becomes part of a shell command. `Resources` checks the form of partition, time
and memory before they become options; the paths of a job are its working directory and its data.
"""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from zoerefine.base.config.study_keys import TIME
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import ATTEMPT, CALLER_FOLDER, RUN_FOLDER, SEED
from zoerefine.base.secrets import secret_names
from zoerefine.lab.launch.git.address import LOGIN_VARIABLES
from zoerefine.lab.launch.queue.executor import Resources
from zoerefine.lab.launch.queue.slurm.commands import command_variables, run_slurm
from zoerefine.lab.launch.variables import LIBRARY, python_path

NODE_PROGRAM = "zoerefine.lab.launch.queue.slurm.node_job"
# USR1 comes before the time limit; it must not end the script before Python waits for it.
SCRIPT = "#!/bin/sh\ntrap '' USR1\nexec {python} -P -m {program} {folder}\n"
EARLY_S = 60  # Slurm may ask a job to stop so long before its grace begins
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
NOT_OURS = {*LOGIN_VARIABLES, RUN_FOLDER, CALLER_FOLDER, SEED, ATTEMPT}


def script_text(folder: Path) -> str:
    """The script of the job whose files are in the folder."""
    python, place = shlex.quote(sys.executable), shlex.quote(str(folder))
    return SCRIPT.format(python=python, program=NODE_PROGRAM, folder=place)


def submit_script(script: Path, name: str, resources: Resources) -> str:
    """Give a script to Slurm, to run in its own folder; returns the job's number.

    Raises:
        SlurmBusy: later, Slurm may accept it; or it has, and its list has a job of this name.
        SlurmError: Slurm refuses it.
    """
    words = sbatch_options(resources)
    environment = job_variables(os.environ)
    environment["PYTHONPATH"] = python_path(environment, LIBRARY)
    # Slurm replaces %j and the like in the whole path, in a relative one's folder too.
    log = f"{str(script.parent).replace('%', '%%')}/%j.log"
    fixed = ("--parsable", f"--job-name={name}", f"--output={log}", "--export=ALL")
    printed = run_slurm("sbatch", *fixed, *words, script.name, folder=script.parent,
                        environment=environment)  # fmt: skip
    return printed.strip().partition(";")[0]  # a cluster's name may follow


def sbatch_options(resources: Resources) -> list[str]:
    """The options of sbatch for a job. Raises `UserError` for what Slurm cannot reserve."""
    if resources.gpus != int(resources.gpus):
        raise UserError(f"--gpus {resources.gpus}: Slurm reserves whole GPUs: give 1, 2, ...")
    if resources.time:
        check_limit(f"--time {resources.time}", seconds_of(resources.time), resources.grace)
    # B: the signal goes to the script alone, which asks its launcher to stop.
    words = [f"--nodes={resources.nodes}", f"--ntasks={resources.nodes}", "--ntasks-per-node=1"]
    words += ["--requeue", "--open-mode=append", f"--cpus-per-task={resources.cpus}"]
    words += [f"--signal=B:USR1@{resources.grace}"]
    given = {"partition": resources.partition, "time": resources.time, "mem": resources.memory}
    words += [f"--{name}={value}" for name, value in given.items() if value]
    return words + ([f"--gres=gpu:{resources.gpus:.0f}"] if resources.gpus else [])


def check_limit(what: str, limit_s: int, grace_s: int) -> None:
    """Raises `UserError` for a time limit at which a job may be stopped before it has begun."""
    if limit_s <= grace_s + EARLY_S:
        raise UserError(
            f"{what} may leave a job no time: Slurm asks it to stop --grace {grace_s} s before its "
            f"limit, or up to {EARLY_S} s earlier; give a --time of more than "
            f"{grace_s + EARLY_S} s, or a shorter --grace"
        )


def seconds_of(time: str) -> int:
    """A time limit of Slurm in seconds: MIN, MIN:SEC, HOURS:MIN:SEC, or DAYS-HOURS[:MIN[:SEC]]."""
    match = TIME.fullmatch(time)
    assert match is not None, time
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:  # minutes come first
        numbers.insert(0, 0)
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job gets: all but secrets, and what belongs to another job.

    Slurm stores the environment of a job in files of its own, and in its accounting database where
    the site says so.
    """
    secrets = secret_names(environment)
    left_out = {*secrets.values(), *NOT_OURS}
    return {
        name: value
        for name, value in command_variables(environment).items()
        if VARIABLE.fullmatch(name)
        and name not in left_out
        and not any(secret in value for secret in secrets)
    }
