"""A launch's hold on its run directory: the lock, and nothing left behind unless the job starts."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import create_ignored_folder
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.plan import LaunchPlan

MADE_BY_LAUNCH = (
    *(".lock", ".provenance.lock", "provenance.json", "environment.txt", "uncommitted.patch"),
    *("included.json", "inputs.json"),
)
LOCK_WAIT_S = 15.0  # for a job to end whose launcher was killed


def refuse_another_job(plan: LaunchPlan, run: RunDir) -> None:
    """Raises `UserError` where the folder holds the run of another job."""
    if not run.provenance_file.exists():
        return
    recorded = run.read_json(run.provenance_file).get("identity")
    if recorded is not None and recorded != plan.identity:
        raise UserError(
            f"{run.path} belongs to another job: its commit, config or words differ; remove that "
            "folder, or give another --name"
        )


def create_run_root(run: RunDir) -> None:
    """Create the folders above a run. Git ignores the outermost one that we create."""
    folder, root = run.path.parent, run.path.parents[1]
    create_ignored_folder(root)
    if not (root / ".gitignore").exists():  # it is the user's
        create_ignored_folder(folder)


@contextmanager
def leaving_nothing_unless_started(run: RunDir, input_name: str, had_lock: bool) -> Iterator[None]:
    """Remove what the launch made in the run directory if it ends before the job starts.

    Files that were there before stay. The caller holds the run's lock.

    Args:
        had_lock: whether the lock's file was there before the launch.
    """
    before = set(os.listdir(run.path)) - (set() if had_lock else {run.lock_file.name})
    made = {*MADE_BY_LAUNCH, input_name} - before
    state = read_bytes(run.status_file)
    try:
        yield
    except BaseException:
        if read_bytes(run.status_file) == state:
            for name in made:
                (run.path / name).unlink(missing_ok=True)
            with suppress(OSError):  # it is not empty
                run.path.rmdir()
        raise


def read_bytes(path: Path) -> bytes | None:
    """A file's bytes; None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@contextmanager
def wait_for_lock(run: RunDir, patient: bool = False) -> Iterator[int]:
    """Hold the run's lock. Where its launcher was killed, its job gets a moment to end.

    Args:
        patient: a launcher gets this moment, too.

    Raises `UserError` where another launcher runs it.
    """
    deadline = time.monotonic() + LOCK_WAIT_S
    with ExitStack() as stack:
        while True:
            try:
                lock_fd = stack.enter_context(run.locked())
                break
            except UserError:
                in_use = not patient and _is_alive(run.status().pid)
                if in_use or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield lock_fd


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid > 0
