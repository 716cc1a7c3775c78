"""Launches as jobs of a Slurm cluster: each job runs our launcher on its node.

Plain sbatch, squeue, scancel and scontrol, not submitit: submitit pickles a function, which only
the same Python and packages can read, while our jobs are words of `zoerefine run`. A job is a
constant script of three lines and a JSON file, which stay readable in the run. It needs no package.

Not an array either: each job has a run directory of its own, is found there by the same command
later, and is cancelled and queued again alone. One sbatch takes about ten milliseconds.

Jobs outlive the command that submitted them. Slurm's own list says which jobs wait or run: a job's
name is a digest of its folder. So a command that was killed between sbatch and its record does not
submit twice. How a job ended is in its folder, since Slurm forgets jobs after a few minutes, and
sites may have no accounting.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.files import write_json
from zoerefine.launch.executor import JobOutcome, Resources
from zoerefine.launch.executor.slurm_commands import (
    ListedJob,
    SlurmError,
    interrupt,
    kill,
    list_jobs,
    missing_program,
    sbatch_options,
    submit_script,
)
from zoerefine.launch.executor.slurm_files import FOLDER, SlurmFiles, read
from zoerefine.launch.redaction import find_secret
from zoerefine.locks import lock
from zoerefine.progress import warn

LISTING_S = 5.0  # between two questions to Slurm, for all jobs together
FILE_WAIT_S = 20.0  # until a file that a node wrote is seen here: shared folders are cached
CANCELLED, KILLED = 130, 137


@contextmanager
def slurm_executor(resources: Resources) -> Iterator["SlurmExecutor"]:
    """Jobs with these resources. Raises `UserError` where Slurm is missing, or they are wrong."""
    if program := missing_program():
        raise UserError(
            f"Slurm's command {program} is not on PATH: run this on a machine that submits jobs"
        )
    sbatch_options(resources)
    yield SlurmExecutor(resources)


@dataclass
class SlurmTicket:
    """A job in Slurm.

    Attributes:
        number: Slurm's number of the job.
        note: that number and what Slurm says of the job.
        submitted_s, ended_s: monotonic times; `ended_s` is 0 until Slurm lists the job as ended.
    """

    number: str
    files: SlurmFiles
    note: str = ""
    submitted_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0
    cancelled: int = 0


class SlurmExecutor:
    """Each ticket is a job that runs the launcher to its end, however often it is queued again."""

    keeps_jobs = True

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._jobs: dict[str, ListedJob] = {}
        self._listed_s = self._asked_s = float("-inf")

    def submit(self, words: Sequence[str], folder: Path) -> SlurmTicket:
        files = SlurmFiles(folder.resolve() / FOLDER)
        check_job(words, files.folder)
        files.folder.mkdir(parents=True, exist_ok=True)
        with lock(files.lock_file):
            number = active_job(files)
            if not number:
                files.write_job(words, self.resources)
                number = submit_script(files.script_file, files.job_name, self.resources)
            write_json(files.number_file, {"job": number, "name": files.job_name})
        return SlurmTicket(number, files, f"Slurm job {number}")

    def poll(self, ticket: SlurmTicket) -> JobOutcome | None:
        if outcome := ticket.files.outcome(ticket.number):
            return outcome
        self._list(ticket.submitted_s)
        if self._listed_s < ticket.submitted_s:  # Slurm does not answer
            return None
        job = self._jobs.get(ticket.number)
        if job is not None and job.is_active:
            reason = f" ({job.reason})" if job.state == "PENDING" else ""
            ticket.note = f"Slurm job {ticket.number}, {job.state.lower()}{reason}"
            ticket.ended_s = 0.0
            return None
        ticket.ended_s = ticket.ended_s or time.monotonic()
        cancelled = job is not None and job.state == "CANCELLED"
        if not cancelled and time.monotonic() - ticket.ended_s < FILE_WAIT_S:
            return None
        state = job.state if job else "no longer known to Slurm"
        message = f"Slurm job {ticket.number}: {state}; see {ticket.files.log_file(ticket.number)}"
        return JobOutcome(CANCELLED if cancelled else KILLED, message)

    def _list(self, since_s: float) -> None:
        """Ask Slurm for the states of all jobs, where they are old or from before a time."""
        now = time.monotonic()
        if since_s <= self._asked_s and now - self._asked_s < LISTING_S:
            return
        answered = self._listed_s == self._asked_s
        self._asked_s = now
        try:
            self._jobs = {job.id: job for job in list_jobs()}
            self._listed_s = now
        except SlurmError as error:  # the jobs go on without slurmctld
            if answered:
                warn(f"waiting for Slurm: {error}")

    def cancel(self, ticket: SlurmTicket) -> None:
        ticket.cancelled += 1
        try:
            interrupt(ticket.number) if ticket.cancelled == 1 else kill(ticket.number)
        except SlurmError as error:
            warn(f"Slurm job {ticket.number}: {error}")


def active_job(files: SlurmFiles) -> str:
    """The number of a job of this folder that has not ended; empty where there is none."""
    for job in list_jobs():
        if job.name == files.job_name and job.is_active and not files.outcome(job.id):
            return job.id
    return ""


def is_in_slurm(folder: Path) -> bool:
    """Whether a job of this run directory waits or runs, or Slurm cannot say so."""
    files = SlurmFiles(folder.resolve() / FOLDER)
    number = read(files.number_file).get("job", "")
    if not number or files.outcome(number):
        return False
    try:
        return bool(active_job(files))
    except SlurmError:
        return True


def check_job(words: Sequence[str], folder: Path) -> None:
    """Raises `UserError` for a job that cannot be written down."""
    if any(ord(character) < 32 for character in str(folder)):
        raise UserError(f"{str(folder)!r} has a control character: Slurm's lists have lines")
    if name := find_secret("\n".join(words).encode(errors="surrogateescape")):
        raise UserError(
            f"the job's words contain the secret of {name}, and its run would keep them: let the "
            "job read it from a file"
        )
