"""Slurm's commands: what they are given, and what they print.

No word of a user becomes part of a shell command. `Resources` checks the form of partition, time
and memory before they become options; the paths of a job are its working directory and its data.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zoerefine.config.cluster_keys import TIME
from zoerefine.errors import UserError
from zoerefine.launch.executor import Resources
from zoerefine.launch.python_path import LIBRARY, python_path
from zoerefine.launch.redaction import secret_names
from zoerefine.launch.repository_address import LOGIN_VARIABLES
from zoerefine.run_dir import ATTEMPT, CALLER_FOLDER, RUN_FOLDER, SEED

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol")
PREFIX = "zoerefine-"  # of the names of our jobs
TIMEOUT_S = 60.0  # for an answer; Slurm's own commands try for about 10 s
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Options of sbatch that users and sites set in the environment. Others would change our jobs.
KEPT = {"SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION",
        "SBATCH_CONSTRAINT"}  # fmt: skip
OPTION_VARIABLES = re.compile(r"(SLURM|SBATCH|SQUEUE|SCANCEL|SCONTROL)_")
NOT_OURS = {*LOGIN_VARIABLES, RUN_FOLDER, CALLER_FOLDER, SEED, ATTEMPT}
ACTIVE = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "RESIZING",
          "REQUEUE_HOLD", "REQUEUE_FED", "SIGNALING", "STAGE_OUT", "STOPPED",
          "SPECIAL_EXIT"}  # fmt: skip


class SlurmError(UserError):
    """A command of Slurm failed; the message is Slurm's own."""


@dataclass(frozen=True)
class ListedJob:
    """A job as squeue lists it.

    Attributes:
        state: such as PENDING, in capitals.
        reason: why a job waits, or `None`.
        elapsed: how long it has run, as D-HH:MM:SS.
        nodes: where it runs; empty while it waits.
        folder: its working directory.
    """

    id: str
    name: str
    state: str
    reason: str
    elapsed: str
    nodes: str
    folder: Path

    @property
    def is_active(self) -> bool:
        """Whether it waits, runs, or will run again."""
        return self.state in ACTIVE


def missing_program() -> str:
    """The first of Slurm's commands that is not on PATH; empty where all are."""
    return next((name for name in PROGRAMS if shutil.which(name) is None), "")


def list_jobs() -> list[ListedJob]:
    """Our jobs in Slurm that belong to this user, those that ended a few minutes ago too."""
    fields = "%i|%T|%r|%M|%N|%j|%Z"
    words = ("--noheader", "--states=all", f"--user={os.getuid()}", f"--format={fields}")
    rows = (line.split("|", 6) for line in run_slurm("squeue", *words).splitlines())
    return [
        ListedJob(number, name, state, reason, elapsed, nodes, Path(folder))
        for number, state, reason, elapsed, nodes, name, folder in rows
        if name.startswith(PREFIX)
    ]


def submit_script(script: Path, name: str, resources: Resources) -> str:
    """Give a script to Slurm, to run in its own folder; returns the job's number."""
    words = sbatch_options(resources)
    environment = job_variables(os.environ)
    environment["PYTHONPATH"] = python_path(environment, LIBRARY)
    fixed = ("--parsable", f"--job-name={name}", "--output=%j.log", "--export=ALL")
    printed = run_slurm("sbatch", *fixed, *words, script.name, folder=script.parent,
                        environment=environment)  # fmt: skip
    return printed.strip().partition(";")[0]  # a cluster's name may follow


def sbatch_options(resources: Resources) -> list[str]:
    """The options of sbatch for a job. Raises `UserError` for what Slurm cannot reserve."""
    if resources.gpus != int(resources.gpus):
        raise UserError(f"--gpus {resources.gpus}: Slurm reserves whole GPUs: give 1, 2, ...")
    if resources.time and seconds_of(resources.time) <= resources.grace:
        raise UserError(
            f"--time {resources.time} leaves no time before --grace {resources.grace} (seconds): "
            "give a longer time or a shorter grace"
        )
    # B: the signal goes to the script alone, which asks its launcher to stop.
    words = [f"--nodes={resources.nodes}", f"--ntasks={resources.nodes}", "--ntasks-per-node=1"]
    words += ["--requeue", "--open-mode=append", f"--cpus-per-task={resources.cpus}"]
    words += [f"--signal=B:USR1@{resources.grace}"]
    given = {"partition": resources.partition, "time": resources.time, "mem": resources.memory}
    words += [f"--{name}={value}" for name, value in given.items() if value]
    return words + ([f"--gres=gpu:{resources.gpus:.0f}"] if resources.gpus else [])


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
        for name, value in environment.items()
        if VARIABLE.fullmatch(name)
        and name not in left_out
        and (name in KEPT or not OPTION_VARIABLES.match(name))
        and not any(secret in value for secret in secrets)
    }


def interrupt(number: str) -> None:
    """Ask a job's script to stop; a job that waits is removed from Slurm's queue."""
    run_slurm("scancel", "--quiet", "--state=PENDING", number)
    with suppress(SlurmError):  # it was waiting, or it has just ended
        run_slurm("scancel", "--quiet", "--signal=INT", "--batch", number)


def kill(number: str) -> None:
    """End a job: its processes get SIGTERM, and SIGKILL after Slurm's KillWait."""
    run_slurm("scancel", "--quiet", number)


def requeue(number: str) -> None:
    """End a running job, and put it back in Slurm's queue under the same number."""
    run_slurm("scontrol", "requeue", number)


def run_slurm(
    program: str,
    *words: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command of Slurm prints. Raises `SlurmError` with its last line where it fails."""
    if environment is None:
        environment = {name: value for name, value in os.environ.items()
                       if name in KEPT or not OPTION_VARIABLES.match(name)}  # fmt: skip
    try:
        done = subprocess.run(
            [program, *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S,
        )  # fmt: skip
    except FileNotFoundError:
        raise SlurmError(f"Slurm's command {program} is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{program} did not answer within {TIMEOUT_S:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SlurmError(f"Slurm: {lines[-1]}")
    return done.stdout
