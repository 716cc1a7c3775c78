"""What a job left in its workspace, collected into its run.

    <run>/left/        the job's files, by their paths in the workspace
    <run>/left.json    what was collected and what was not; written when a collection is complete

A file is moved by a rename, or copied and then removed where that is not possible, so at any
moment it is in the workspace or in the run. A run without left.json has a collection to complete.
When an unfinished run starts again, its files are put back first: a job that keeps its checkpoints
in its working directory finds them.
"""

import errno
import os
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.files.atomic import sync, write_json
from zoerefine.base.files.file_lock import try_lock
from zoerefine.base.messages import counted, first_few, say
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.job import LIMIT_BYTES
from zoerefine.lab.launch.record import provenance
from zoerefine.lab.launch.record.comparison import result_digests
from zoerefine.lab.launch.workspace.record import (
    digest_content,
    is_log,
    left_files,
    read_record,
    remove_empty_folders,
    scan,
)
from zoerefine.lab.launch.workspace.workspace import delete_workspace, last_run, take_back

SCHEMA = 1
POLL_S = 0.02


@dataclass(frozen=True)
class NotCollected:
    """A file that stays in the workspace, and why."""

    path: str
    bytes: int
    reason: str


def collect_after(run: RunDir, folder: Path) -> None:
    """Collect what the run's job left in a workspace, and record the digests of the results.

    The caller holds the locks of the run and of the workspace.
    """
    recorded = run.read_json(run.provenance_file)
    take_back(run, folder, recorded)
    collect(run, folder, recorded.get("left_limit_bytes", LIMIT_BYTES))
    provenance.add(run, outputs=result_digests(run))


def complete_collection(run: RunDir) -> None:
    """Collect what the last attempt left, where its launcher was killed before it could.

    The caller holds the run's lock.
    """
    # Another run may hold the workspace's lock while it looks whether it can use it.
    while (folder := pending_workspace(run)) is not None:
        with try_lock(Path(f"{folder}.lock")) as lock_fd:
            if lock_fd is not None and pending_workspace(run) == folder:
                collect_after(run, folder)
                return
        time.sleep(POLL_S)


def pending_workspace(run: RunDir) -> Path | None:
    """The workspace that still has files of the run's last attempt; None where none does.

    A workspace of an earlier attempt does not count: its files are older than the run's.
    """
    if run.left_file.exists() or not run.provenance_file.exists():
        return None
    recorded = run.read_json(run.provenance_file)
    folder = Path(recorded.get("workspace") or "/")
    here = recorded.get("host") == socket.gethostname()
    ours = here and folder.is_dir() and last_run(folder) == str(run.path)
    return folder if ours else None


def rescue(folder: Path) -> list[str]:
    """Collect what a workspace holds for the run that used it last; returns what it still holds.

    The caller holds the workspace's lock.
    """
    run = RunDir(Path(last_run(folder) or "/"))
    if pending_workspace(run) == folder:
        with try_lock(run.lock_file) as lock_fd:
            if lock_fd is not None and pending_workspace(run) == folder:
                collect_after(run, folder)
    return list(left_files(folder).names) if folder.exists() else []


def collect(run: RunDir, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
    """Move what a job left in a workspace to the run, smallest files first.

    A workspace whose files the job changed, those of its repository included, is deleted once
    nothing else is in it.

    Args:
        limit_bytes: the most that the run's left files may take together. What exceeds it is
            named in left.json and stays in the workspace.
    """
    left = left_files(folder)
    if left.committed:  # before the files are moved
        logs = {f"{RunDir.left}/{name}": known for name, known in left.committed.items()}
        provenance.add(run, logs_committed=logs)
    fitting, too_large = choose(run, folder, left.names, limit_bytes)
    with scratch_folder(run.path) as scratch:
        failed = move_files(folder, run.left, fitting, scratch)
    skipped = sorted(too_large + failed, key=lambda one: one.path)
    remove_empty_folders(folder, scan(folder))
    write_json(run.left_file, provenance.printable(summary(run, limit_bytes, skipped)))
    if left.spoiled and not skipped:
        delete_workspace(folder)
    report(run, folder, len(fitting) - len(failed), skipped)


def committed_logs(folder: Path) -> dict[str, tuple[int, str]]:
    """Of logs that a workspace's commit has, bytes and SHA-256, by the paths that they have in a
    run."""
    record = read_record(folder)
    files = record.files.items() if record else ()
    return {f"{RunDir.left}/{n}": (one.size, one.digest) for n, one in files if is_log(n)}


def choose(
    run: RunDir, folder: Path, names: Sequence[str], limit_bytes: int
) -> tuple[list[str], list[NotCollected]]:
    """The files that fit into the limit, and those that do not."""
    collected = scan(run.left).files.keys() - set(names)
    room_bytes = limit_bytes - sum(size_of(run.left / name) for name in collected)
    sizes = sorted((size_of(folder / name), name) for name in names)
    fitting: list[str] = []
    too_large: list[NotCollected] = []
    for size_bytes, name in sizes:
        room_bytes -= size_bytes
        if room_bytes >= 0:
            fitting.append(name)
        else:
            reason = f"over the limit of {limit_bytes} bytes in all (--left-limit)"
            too_large.append(NotCollected(name, size_bytes, reason))
    return fitting, too_large


def size_of(path: Path) -> int:
    """A file's bytes; of a link, its own."""
    return path.lstat().st_size


def move_files(
    source: Path, target: Path, names: Sequence[str], scratch: Path
) -> list[NotCollected]:
    """Move files to the same paths below another folder; returns those that could not be moved.

    Args:
        scratch: a folder on the target's file system, for copies that are not complete.
    """
    failed: list[NotCollected] = []
    checked = {target}
    for name in names:
        place = target / name
        size_bytes = size_of(source / name)
        try:
            if place.parent not in checked:
                make_folder(target, place.parent)
                checked.add(place.parent)
            move(source / name, place, scratch)
        except OSError as error:
            failed.append(NotCollected(name, size_bytes, error.strerror or str(error)))
    return failed


def make_folder(root: Path, folder: Path) -> None:
    """Make a folder below another one. Raises `OSError` where a link would lead elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() != root.resolve() / folder.relative_to(root):
        raise OSError(errno.ELOOP, "a symbolic link is in the way")


def move(source: Path, target: Path, scratch: Path) -> None:
    """Move a file or a link, replacing the target. At any moment one of both is complete.

    A file with further hard links is copied: others could change it through them.
    """
    facts = source.lstat()
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(facts.st_mode) or facts.st_nlink == 1:
        try:
            os.rename(source, target)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    temporary = scratch / uuid.uuid4().hex
    shutil.copy2(source, temporary, follow_symlinks=False)
    if not temporary.is_symlink():
        sync(temporary)
    os.replace(temporary, target)
    source.unlink()


@contextmanager
def scratch_folder(beside: Path) -> Iterator[Path]:
    """A folder for incomplete copies, empty at the start and removed at the end."""
    folder = beside / ".left.tmp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def summary(run: RunDir, limit_bytes: int, skipped: Sequence[NotCollected]) -> dict[str, Any]:
    """The contents of left.json."""
    return {
        "schema": SCHEMA,
        "limit_bytes": limit_bytes,
        "files": [describe(run.left, name) for name in sorted(scan(run.left).files)],
        "not_collected": [asdict(one) for one in skipped],
    }


def describe(root: Path, name: str) -> dict[str, Any]:
    """A file's row in left.json. The digest of a link is that of its target's name."""
    path = root / name
    facts = {"path": name, "bytes": size_of(path), "sha256": digest_content(path)}
    return facts | ({"link": os.readlink(path)} if path.is_symlink() else {})


def report(run: RunDir, folder: Path, count: int, skipped: Sequence[NotCollected]) -> None:
    """Say what was collected, and what stays in the workspace."""
    if count:
        say(f"collected {counted(count, 'file')} that the job left in its workspace: {run.left}")
    if skipped:
        names = first_few([f"{one.path} ({one.bytes / 2**20:.1f} MB)" for one in skipped])
        say(f"not collected, see {run.left_file}: {names}; they stay in {folder}")


def put_back(run: RunDir, folder: Path) -> None:
    """Move what earlier attempts left back into the workspace, before the job starts again.

    The caller holds the locks of the run and of the workspace, and has recorded the workspace.
    """
    run.left_file.unlink(missing_ok=True)
    names = sorted(scan(run.left).files)
    if not names:
        return
    with scratch_folder(folder / ".git") as scratch:
        failed = move_files(run.left, folder, names, scratch)
    remove_empty_folders(run.left, scan(run.left))
    for one in failed:
        say(f"{run.left / one.path} cannot be put back into the workspace: {one.reason}")
