"""Slurm's commands: how they are called, what they print, and how they fail."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zoerefine.base.errors import UserError

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
    rows = (line.split("|", 6) for line in run_slurm("squeue", *words).split("\n"))
    whole = (row for row in rows if len(row) == 7)  # a line end in a folder's name makes two lines
    return [
        ListedJob(number, name, state, reason, elapsed, nodes, Path(folder))
        for number, state, reason, elapsed, nodes, name, folder in whole
        if name.startswith(PREFIX)
    ]


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


# Options of sbatch that users and sites set in the environment. Others would change our jobs.
KEPT = {"SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION",
        "SBATCH_CONSTRAINT"}  # fmt: skip
OPTION_VARIABLES = re.compile(r"(SLURM|SBATCH|SQUEUE|SCANCEL|SCONTROL)_")


def command_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of Slurm's commands: no options that would change what they do."""
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT or not OPTION_VARIABLES.match(name)
    }
