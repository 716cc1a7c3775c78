"""Submitting a job to Slurm, once: a job of the same folder that waits or runs there is kept.

A refused submission leaves the folder as it was.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.files import removing_new_folders, write_json
from zoerefine.launch.executor import Resources
from zoerefine.launch.executor.slurm_commands import (
    ListedJob,
    SlurmBusy,
    SlurmError,
    cancel_waiting,
    list_jobs,
    submit_script,
)
from zoerefine.launch.executor.slurm_files import FOLDER, SlurmFiles, read
from zoerefine.launch.redaction import find_secret
from zoerefine.locks import lock
from zoerefine.progress import say, warn


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
    except SlurmBusy:
        raise
    except UserError:
        for path, data in before.items():
            path.unlink(missing_ok=True) if data is None else path.write_bytes(data)
        raise


def job_to_keep(files: SlurmFiles, wanted: Resources) -> ListedJob | None:
    """The job of this folder in Slurm. One that waits with other options makes room for a new one.

    A job that has started goes on with the options that it has.
    """
    job = active_job(files)
    options = " and ".join(f"--{name}" for name in files.changed_resources(wanted))
    if job is None or not options:
        return job
    if job.is_waiting:
        cancel_waiting(job.id)
        job = active_job(files)  # it may have just started
    if job is None:
        say(f"submitted again with another {options}: {files.folder.parent}")
    else:
        warn(
            f"Slurm job {job.id} has started with another {options} than this command gives, and "
            f"keeps it; Ctrl-C stops it: {files.folder.parent}"
        )
    return job


def active_job(files: SlurmFiles) -> ListedJob | None:
    """The job of this folder that has not ended; None where there is none."""
    for job in list_jobs():
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
    except SlurmError:
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
