"""Slurm's commands: how they are called, what they print, how they fail, and what a job is given.

No word of a user becomes part of a shell command. `Resources` checks the form of partition, time
and memory before they become options; the paths of a job are its working directory and its data.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zoerefine.base.config.study_keys import TIME
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import ATTEMPT, CALLER_FOLDER, RUN_FOLDER, SEED
from zoerefine.base.secrets import secret_names
from zoerefine.lab.launch.environment.environment import LIBRARY, python_path
from zoerefine.lab.launch.git.address import LOGIN_VARIABLES
from zoerefine.lab.launch.queue.executor import Resources

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol")
PREFIX = "zoerefine-"  # of the names of our jobs
TIMEOUT_S = 60.0  # for an answer; Slurm's own commands try for about 10 s
PATIENCE_S = 1.0  # until we look at what a command says of its waiting
ACTIVE = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "RESIZING",
          "REQUEUE_HOLD", "REQUEUE_FED", "SIGNALING", "STAGE_OUT", "STOPPED",
          "SPECIAL_EXIT"}  # fmt: skip
WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
# What commands print where Slurm does not answer, or takes no more jobs for now.
BUSY = re.compile(
    "Unable to contact slurm controller|timed out|standby mode|Zero Bytes were transmitted|"
    "Communication .* failure|Message .* failure|temporarily|retrying|MaxSubmit"
)
SLEEPING = b"sleeping and retrying"  # sbatch, for two minutes: there is no room for a job


class SlurmError(UserError):
    """A command of Slurm failed; the message is Slurm's own."""


class SlurmBusy(SlurmError):
    """Slurm does not answer, or takes no more jobs for now. The same command may succeed later.

    It may have been obeyed: only the answer may have been lost.
    """


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

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started, or will start again."""
        return self.state in WAITING


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


def interrupt(number: str) -> None:
    """Ask a job's script to stop; a job that waits is removed from Slurm's queue."""
    cancel_waiting(number)
    with suppress(SlurmError):  # it was waiting, or it has just ended
        run_slurm("scancel", "--quiet", "--signal=INT", "--batch", number)


def cancel_waiting(number: str) -> None:
    """Remove a job from Slurm's queue, unless it has started."""
    run_slurm("scancel", "--quiet", "--state=PENDING", number)


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
    """What a command of Slurm prints.

    Raises:
        SlurmBusy: Slurm does not answer, or has no room for a job.
        SlurmError: it fails for another reason; the message is its last line.
    """
    try:
        process = subprocess.Popen(
            [program, *words], cwd=folder, env=environment or command_variables(os.environ),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,  # a terminal's Ctrl-C is for us
        )  # fmt: skip
    except FileNotFoundError:
        raise SlurmError(f"Slurm's command {program} is not on PATH") from None
    with process:
        try:
            printed, errors = answer_of(process, program)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = errors.strip().splitlines() or [f"exit code {process.returncode}"]
        raise (SlurmBusy if BUSY.search(errors) else SlurmError)(f"Slurm: {lines[-1]}")
    return printed


def answer_of(process: "subprocess.Popen[str]", program: str) -> tuple[str, str]:
    """The outputs of a command that has ended. Raises `SlurmBusy` where it would wait for long."""
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        try:
            return process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired as waiting:
            if SLEEPING in (waiting.stderr or b""):
                raise SlurmBusy("Slurm has no room for more jobs (MaxJobCount)") from None
    raise SlurmBusy(f"{program} did not answer within {TIMEOUT_S:.0f} s")


EARLY_S = 60  # Slurm may ask a job to stop so long before its grace begins
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Options of sbatch that users and sites set in the environment. Others would change our jobs.
KEPT = {"SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION",
        "SBATCH_CONSTRAINT"}  # fmt: skip
OPTION_VARIABLES = re.compile(r"(SLURM|SBATCH|SQUEUE|SCANCEL|SCONTROL)_")
NOT_OURS = {*LOGIN_VARIABLES, RUN_FOLDER, CALLER_FOLDER, SEED, ATTEMPT}


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
        for name, value in environment.items()
        if VARIABLE.fullmatch(name)
        and name not in left_out
        and (name in KEPT or not OPTION_VARIABLES.match(name))
        and not any(secret in value for secret in secrets)
    }


def command_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of Slurm's commands: no options that would change what they do."""
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT or not OPTION_VARIABLES.match(name)
    }
