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

from zoerefine.base.errors import INTERRUPTED, KILLED, UserError
from zoerefine.base.messages import warn
from zoerefine.lab.launch.queue.executor import ExecutorBusy, JobOutcome, Resources
from zoerefine.lab.launch.queue.slurm import commands, submission
from zoerefine.lab.launch.queue.slurm.sbatch_options import check_partition_limits, sbatch_options

WORDS = {
    "BeginTime": "Slurm starts it a little later",
    "Cleaning": "its last attempt is ending",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held; `scontrol release` frees it",
    "Licenses": "its licenses are in use",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "Priority": "jobs with a higher priority come first",
    "ReqNodeNotAvail": "nodes that it needs are down or reserved",
    "Reservation": "its reservation has not begun",
    "Resources": "the nodes are busy",
}
NEVER = {
    "AccountNotAllowed": ("its partition refuses its account", "--partition or SBATCH_ACCOUNT"),
    "BadConstraints": (
        "no node has what it asks for",
        "--gpus, --cpus, --memory or SBATCH_CONSTRAINT",
    ),
    "InvalidAccount": ("its account is not known", "SBATCH_ACCOUNT"),
    "InvalidQOS": ("its QOS is not known", "SBATCH_QOS"),
    "PartitionConfig": (
        "no node of its partition has what it asks for",
        "--gpus, --cpus, --memory or --partition",
    ),
    "PartitionNodeLimit": (
        "its partition has fewer nodes, or some are down",
        "--nodes or --partition",
    ),
    "PartitionTimeLimit": ("its partition has a shorter time limit", "--time or --partition"),
    "QOSNotAllowed": ("its partition refuses its QOS", "--partition or SBATCH_QOS"),
}


def in_words(reason: str) -> str:
    """Slurm's reason why a job waits, such as `its partition is down (PartitionDown)`.

    A reason without words of ours stays as it is. Empty where Slurm gives none.
    """
    if reason in ("", "None"):
        return ""
    word = key_of(reason)
    known = WORDS.get(word) or NEVER.get(word, ("",))[0]
    return f"{known} ({word})" if known else reason


def key_of(reason: str) -> str:
    """The reason's name: Slurm may list nodes after it, `ReqNodeNotAvail, UnavailableNodes:n1`."""
    return reason.partition(",")[0]


LISTING_S = 5.0  # between two questions to Slurm, for all jobs together; until it is asked again
FILE_WAIT_S = 20.0  # until a file that a node wrote is seen here: shared folders are cached


@contextmanager
def slurm_executor(resources: Resources) -> Iterator["SlurmExecutor"]:
    """Jobs with these resources. Raises `UserError` where Slurm is missing, or they are wrong."""
    if program := commands.missing_program():
        raise UserError(
            f"Slurm's command {program} is not on PATH: run this on a machine that submits jobs"
        )
    sbatch_options(resources)
    if not resources.time:
        check_partition_limits(resources)
    yield SlurmExecutor(resources)


@dataclass
class SlurmTicket:
    """A job in Slurm.

    Attributes:
        number: Slurm's number of the job.
        is_waiting: whether it has not started, or will start again.
        note: that number and what Slurm says of the job.
        reason: why it waits, as Slurm names it.
        submitted_s, ended_s: monotonic times; `ended_s` is 0 until Slurm lists the job as ended.
    """

    number: str
    files: submission.SlurmFiles
    is_waiting: bool = True
    note: str = ""
    reason: str = ""
    submitted_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0
    cancelled: int = 0


class SlurmExecutor:
    """Each ticket is a job that runs the launcher to its end, however often it is queued again."""

    keeps_jobs = True

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._jobs: dict[str, commands.ListedJob] = {}
        self._listed_s = self._asked_s = float("-inf")
        self._submit_s = float("-inf")  # when the next job may be submitted
        self._warned: dict[str, str] = {}

    def submit(self, words: Sequence[str], folder: Path) -> SlurmTicket:
        if time.monotonic() < self._submit_s:
            raise ExecutorBusy
        files = submission.SlurmFiles(folder.resolve() / submission.FOLDER)
        try:
            number = submission.submit_job(files, words, self.resources)
        except commands.SlurmBusy as error:
            self._submit_s = time.monotonic() + LISTING_S
            self._warn("submitting", str(error))
            raise ExecutorBusy from None
        self._warned.pop("submitting", None)
        return SlurmTicket(number, files, note=f"Slurm job {number}")

    def _warn(self, doing: str, fault: str) -> None:
        """Say once that Slurm must be asked again."""
        if fault not in self._warned.values():
            warn(f"waiting for Slurm: {fault}")
        self._warned[doing] = fault

    def poll(self, ticket: SlurmTicket) -> JobOutcome | None:
        if outcome := ticket.files.outcome(ticket.number):
            return outcome
        self._list(ticket.submitted_s)
        if self._listed_s < ticket.submitted_s:  # Slurm does not answer
            return None
        job = self._jobs.get(ticket.number)
        if job is not None and job.is_active:
            describe(ticket, job)
            return None
        ticket.ended_s = ticket.ended_s or time.monotonic()
        cancelled = job is not None and job.state == "CANCELLED"
        if not cancelled and time.monotonic() - ticket.ended_s < FILE_WAIT_S:
            return None
        return JobOutcome(INTERRUPTED if cancelled else KILLED, ending_of(ticket, job), True)

    def _list(self, since_s: float) -> None:
        """Ask Slurm for the states of all jobs, where they are old or from before a time."""
        now = time.monotonic()
        if since_s <= self._asked_s and now - self._asked_s < LISTING_S:
            return
        self._asked_s = now
        try:
            self._jobs = {job.id: job for job in commands.list_jobs()}
            self._listed_s = now
            self._warned.pop("listing", None)
        except commands.SlurmError as error:  # the jobs go on without slurmctld
            self._warn("listing", str(error))

    def cancel(self, ticket: SlurmTicket) -> None:
        ticket.cancelled += 1
        end = commands.kill if ticket.cancelled > 1 else commands.interrupt
        try:
            end(ticket.number)
        except commands.SlurmError as error:
            warn(f"Slurm job {ticket.number}: {error}")


def describe(ticket: SlurmTicket, job: commands.ListedJob) -> None:
    """Note what Slurm says of a job; warn where it would wait for ever."""
    ticket.ended_s, ticket.is_waiting = 0.0, job.is_waiting
    reason = job.reason if job.is_waiting else ""
    why = in_words(reason) or ("" if job.is_waiting else job.state.lower())
    ticket.note = f"Slurm job {ticket.number}" + (f": {why}" if why else "")
    _, change = NEVER.get(key_of(reason), ("", ""))
    if reason != ticket.reason and change:  # it cannot start as it is
        warn(
            f"{ticket.note}; it will not start like this: press Ctrl-C, which cancels it, change "
            f"{change}, and run the command again"
        )
    ticket.reason = reason


def ending_of(ticket: SlurmTicket, job: commands.ListedJob | None) -> str:
    """How a job ended that did not record it."""
    state = job.state if job else "no longer known to Slurm"
    log = ticket.files.log_file(ticket.number)
    return f"Slurm job {ticket.number}: {state}" + (f"; see {log}" if log.exists() else "")
