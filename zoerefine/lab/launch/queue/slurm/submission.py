"""Submitting a job to Slurm, once: a job of the same folder that waits or runs there is kept.

A refused submission leaves the folder as it was. No word of a user becomes part of a shell command.
`Resources` checks the form of partition, time and memory before they become options of sbatch; the
paths of a job are its working directory and its data.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import removing_new_folders, write_json, write_text
from zoerefine.base.files.file_lock import lock
from zoerefine.base.messages import say, warn
from zoerefine.base.run_dir import ATTEMPT, CALLER_FOLDER, RUN_FOLDER, SEED
from zoerefine.base.secrets import find_secret, registered_secrets, secret_names
from zoerefine.lab.launch.git.address import LOGIN_VARIABLES
from zoerefine.lab.launch.queue.executor import JobOutcome, Resources
from zoerefine.lab.launch.queue.slurm import commands
from zoerefine.lab.launch.queue.slurm.sbatch_options import sbatch_options
from zoerefine.lab.launch.variables import OWN_FOLDER, python_path

FOLDER = "slurm"
NODE_PROGRAM = "zoerefine.lab.launch.queue.slurm.node_job"
# USR1 comes before the time limit; it must not end the script before Python waits for it.
SCRIPT = "#!/bin/sh\ntrap '' USR1\nexec {python} -P -m {program} {folder}\n"
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
NOT_OURS = {*LOGIN_VARIABLES, RUN_FOLDER, CALLER_FOLDER, SEED, ATTEMPT}


class SlurmFiles:
    """The folder `slurm/` of a launch, which the submitting machine and the nodes share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock_file = folder / ".lock"  # held by the command that submits
        self.script_file = folder / "job.sh"
        self.job_file = folder / "job.json"  # the words of `zoerefine run`, the job's resources
        self.number_file = folder / "submitted.json"  # the number of the last submitted job
        self.outcome_file = folder / "outcome.json"  # how that job ended
        self.limits_file = folder / "requeued.json"  # how often it was queued again at its limit
        # What is written for a job, and what an earlier one may have left.
        self.job_files = (
            self.script_file, self.job_file, self.outcome_file, self.limits_file
        )  # fmt: skip

    @property
    def job_name(self) -> str:
        """The name by which Slurm's own list finds the job of this folder."""
        digest = sha256(str(self.folder).encode(errors="surrogateescape")).hexdigest()
        return commands.PREFIX + digest[:16]

    def log_file(self, number: str) -> Path:
        """The launcher's messages. The job's output is in the run's log.txt."""
        return self.folder / f"{number}.log"

    def write_job(self, words: Sequence[str], resources: Resources) -> None:
        """Write the script and its data, and remove what an earlier job left."""
        for path in (self.outcome_file, self.limits_file):
            path.unlink(missing_ok=True)
        write_json(self.job_file, {"words": list(words), **asdict(resources)})
        python, place = shlex.quote(sys.executable), shlex.quote(str(self.folder))
        script = SCRIPT.format(python=python, program=NODE_PROGRAM, folder=place)
        write_text(self.script_file, script)

    def changed_resources(self, wanted: Resources) -> list[str]:
        """The fields of `Resources` in which the last job differs from what is wanted."""
        recorded = read(self.job_file)
        return [name for name, value in asdict(wanted).items() if recorded.get(name) != value]

    def write_outcome(self, number: str, outcome: JobOutcome) -> None:
        """Record how a job ended."""
        write_json(self.outcome_file, {"job": number, **asdict(outcome)})

    def outcome(self, number: str) -> JobOutcome | None:
        """How a job ended; None where it has not recorded that."""
        found = read(self.outcome_file)
        if found.get("job") != number:
            return None
        by_cluster = bool(found.get("by_cluster"))
        return JobOutcome(int(found["code"]), str(found["message"]), by_cluster)

    def requeued(self, number: str) -> int:
        """How often a job was queued again at its time limit."""
        found = read(self.limits_file)
        return int(found["times"]) if found.get("job") == number else 0

    def count_requeue(self, number: str) -> None:
        """Record that a job is queued again at its time limit."""
        write_json(self.limits_file, {"job": number, "times": self.requeued(number) + 1})


def read(path: Path) -> dict[str, Any]:
    """A JSON file of ours; empty where there is none."""
    with suppress(FileNotFoundError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def submit_job(files: SlurmFiles, words: Sequence[str], resources: Resources) -> str:
    """The number of this folder's job: the one that Slurm has, or a new one.

    Raises:
        SlurmBusy: later, it may succeed.
        UserError: the job is refused.
    """
    check_job(words, files.folder)
    with (
        removing_new_folders(files.folder, files.lock_file.name),
        lock(files.lock_file),
        restoring(files),
    ):
        job = job_to_keep(files, resources)
        number = job.id if job else ""
        if not job:
            files.write_job(words, resources)
            number = submit_script(files.script_file, files.job_name, resources)
        write_json(files.number_file, {"job": number, "name": files.job_name})
        return number


@contextmanager
def restoring(files: SlurmFiles) -> Iterator[None]:
    """Where Slurm refuses a job, its files become what an earlier job has left.

    A busy Slurm may have the new job, whose files then stay.
    """
    before = {path: path.read_bytes() if path.exists() else None for path in files.job_files}
    try:
        yield
    except commands.SlurmBusy:
        raise
    except UserError:
        for path, data in before.items():
            path.unlink(missing_ok=True) if data is None else path.write_bytes(data)
        raise


def job_to_keep(files: SlurmFiles, wanted: Resources) -> commands.ListedJob | None:
    """The job of this folder in Slurm. One that waits with other options makes room for a new one.

    A job that has started goes on with the options that it has.
    """
    job = active_job(files)
    options = " and ".join(f"--{name}" for name in files.changed_resources(wanted))
    if job is None or not options:
        return job
    if job.is_waiting:
        commands.cancel_waiting(job.id)
        job = active_job(files)  # it may have just started
    if job is None:
        say(f"submitted again with another {options}: {files.folder.parent}")
    else:
        warn(
            f"Slurm job {job.id} has started with another {options} than this command gives, and "
            f"keeps it; Ctrl-C stops it: {files.folder.parent}"
        )
    return job


def active_job(files: SlurmFiles) -> commands.ListedJob | None:
    """The job of this folder that has not ended; None where there is none."""
    for job in commands.list_jobs():
        if job.name == files.job_name and job.is_active and not files.outcome(job.id):
            return job
    return None


def is_in_slurm(folder: Path) -> bool:
    """Whether a job of this run directory waits or runs, or Slurm cannot say so."""
    files = SlurmFiles(folder.resolve() / FOLDER)
    number = read(files.number_file).get("job", "")
    if not number or files.outcome(number):
        return False
    try:
        return active_job(files) is not None
    except commands.SlurmError:
        return True


def check_job(words: Sequence[str], folder: Path) -> None:
    """Raises `UserError` for a job that cannot be written down."""
    if "\\" in str(folder) or any(ord(character) < 32 for character in str(folder)):
        raise UserError(
            f"{str(folder)!r} has a backslash or a control character, which Slurm cannot take in "
            "the path of a log: give another --runs or --name"
        )
    if name := find_secret("\n".join(words).encode(errors="surrogateescape")):
        raise UserError(
            f"the job's words contain the secret of {name}, and its run would keep them: let the "
            "job read it from a file"
        )


def submit_script(script: Path, name: str, resources: Resources) -> str:
    """Give a script to Slurm, to run in its own folder; returns the job's number.

    Raises:
        SlurmBusy: later, Slurm may accept it; or it has, and its list has a job of this name.
        SlurmError: Slurm refuses it.
    """
    words = sbatch_options(resources)
    environment = job_variables(os.environ)
    environment["PYTHONPATH"] = python_path(environment, OWN_FOLDER)
    # Slurm replaces %j and the like in the whole path, in a relative one's folder too.
    log = f"{str(script.parent).replace('%', '%%')}/%j.log"
    fixed = ("--parsable", f"--job-name={name}", f"--output={log}", "--export=ALL")
    printed = commands.run_slurm("sbatch", *fixed, *words, script.name, folder=script.parent,
                                 environment=environment)  # fmt: skip
    return printed.strip().partition(";")[0]  # a cluster's name may follow


def job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job gets: all but secrets, and what belongs to another job.

    Slurm stores the environment of a job in files of its own, and in its accounting database where
    the site says so.
    """
    secrets = secret_names(environment)
    left_out = {*secrets.values(), *NOT_OURS}
    known = {*secrets, *registered_secrets()}  # such as a database's password by any name
    return {
        name: value
        for name, value in commands.command_variables(environment).items()
        if VARIABLE.fullmatch(name)
        and name not in left_out
        and not any(secret in value for secret in known)
    }
