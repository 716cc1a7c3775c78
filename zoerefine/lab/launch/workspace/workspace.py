"""Workspaces: the files of one commit, verified, and used by one run at a time.

    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>          the files
    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>.lock     held by the run that uses it
    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>.run      the run that used it last
    <home>/records/<mirror>/<commit>[-<changes>].<n>.json        what a fresh one holds

A workspace is a clone that borrows the mirror's objects, so it takes only the disk space of its
files. It is made in a temporary folder, verified, and renamed. A later run gets a free workspace
whose files are still exactly the commit's. Files that a job left are never given to another run:
they are collected into its own run (`left.py`).
"""

import itertools
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.file_lock import try_lock
from zoerefine.lab.launch.git.address import RepositoryAddress
from zoerefine.lab.launch.git.changes import Changes
from zoerefine.lab.launch.git.commands import ISOLATED, git
from zoerefine.lab.launch.workspace.checkout import apply, check_out, verify
from zoerefine.lab.launch.workspace.record import (
    INDEX,
    Differences,
    FileRecord,
    WorkspaceRecord,
    compare,
    describe,
    digest_content,
    in_repositories,
    make_record,
    read_record,
    remove_record,
    write_record,
)


@dataclass(frozen=True)
class Workspace:
    """A workspace that this launch holds: its folder, and the descriptor of its lock."""

    folder: Path
    lock_fd: int


def workspaces_folder(home: Path) -> Path:
    """The folder of all workspaces."""
    return home / "workspaces"


@contextmanager
def workspace(
    address: RepositoryAddress, mirror: Path, commit: str, changes: Changes, home: Path, run: Path
) -> Iterator[Workspace]:
    """Hold a workspace with the commit's files and the changes applied, for one run.

    A run that resumes gets its former workspace back, with the files that it left there. Another
    run gets a free one, or a new one.
    """
    label = commit + (f"-{changes.digest[:12]}" if changes.patch else "")
    base = workspaces_folder(home) / mirror.stem / label
    for folder in possible_folders(base, run):
        with try_lock(Path(f"{folder}.lock")) as lock_fd:
            if lock_fd is None:
                continue
            if not folder.exists():
                make(folder, address, mirror, commit, changes, home, lock_fd)
            elif not prepare(folder, commit, changes, last_run(folder) == str(run)):
                continue
            marker = Path(f"{folder}.run")
            marker.write_text(f"{run}\n", encoding="utf-8", errors="surrogateescape")
            os.utime(folder)  # --clean reads the time of the last use here
            yield Workspace(folder, lock_fd)
            return


def possible_folders(base: Path, run: Path) -> Iterator[Path]:
    """Where a run could work: first the folders that it used before, then all by number."""
    for marker in sorted(base.parent.glob(f"{base.name}.*.run")):
        folder = marker.with_suffix("")
        if folder.exists() and last_run(folder) == str(run):
            yield folder
    for number in itertools.count():
        yield base.with_name(f"{base.name}.{number}")


def last_run(folder: Path) -> str:
    """The run that used a workspace last; empty where there was none."""
    try:
        text = Path(f"{folder}.run").read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    return text.partition("\n")[0]


def delete_folder(folder: Path) -> None:
    """Delete a workspace or another folder of its kind. The caller holds its lock.

    It is renamed first, so that a kill in the middle leaves nothing that looks complete.
    """
    doomed = folder.with_name(f".{folder.name}.removed.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def delete_workspace(folder: Path) -> None:
    """Delete a workspace with its record. The caller holds its lock."""
    delete_folder(folder)
    Path(f"{folder}.run").unlink(missing_ok=True)
    remove_record(folder)


def make(
    folder: Path,
    address: RepositoryAddress,
    mirror: Path,
    commit: str,
    changes: Changes,
    home: Path,
    lock_fd: int,
) -> None:
    """Check out into a temporary folder, verify it, and rename it. The caller holds its lock."""
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):  # of killed launches
        shutil.rmtree(leftover, ignore_errors=True)
    remove_record(folder)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        check_out(temporary, address, mirror, commit, home, lock_fd)
        if changes.patch:
            apply(temporary, changes)
        try:
            digests = verify(temporary, commit, changes)
        except UserError as error:
            raise UserError(
                f"a fresh checkout of {commit[:12]} differs from the commit: {error}; the mirror "
                f"{mirror} may be damaged: delete it and try again"
            ) from None
        write_record(folder, make_record(temporary, commit, changes.digest, digests))
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def prepare(folder: Path, commit: str, changes: Changes, same_run: bool) -> bool:
    """Make an existing workspace ready for a run; False where its files are not as recorded.

    Python's bytecode is removed, since Python does not compare it with the source's content. A
    changed index is made again: git writes it when a job asks for the state of the files.

    Args:
        same_run: the run used the workspace last, so new files are its own and stay.
    """
    record = read_record(folder)
    if record is None or folder.is_symlink():
        return False
    if (record.commit, record.changes) != (commit, changes.digest):
        return False
    found = compare(folder, record)
    in_git = in_repositories(record, found.new)
    if found.changed or in_git or (found.new and not same_run):
        return False
    try:
        tidy(folder, record, found)
        rows = {name: remade_index(folder, name, changes) for name in found.indexes}
    except (OSError, UserError):
        return False
    if found.touched or rows:
        files = {**record.files, **found.touched, **rows}
        write_record(folder, replace(record, files=files))
    return True


def tidy(folder: Path, record: WorkspaceRecord, found: Differences) -> None:
    """Remove bytecode, pipes, sockets and empty folders that a job left."""
    for name in {*found.contents.bytecode, *found.contents.others}.difference(record.files):
        (folder / name).unlink()
    places = found.contents.folders
    in_git = set(in_repositories(record, (f"{name}/" for name in places)))
    for name in reversed(places):
        if f"{name}/" not in in_git:
            with suppress(OSError):  # it is not empty
                (folder / name).rmdir()


def remade_index(folder: Path, name: str, changes: Changes) -> FileRecord:
    """Make a repository's index again; returns its row for the record."""
    path = folder / name
    path.unlink(missing_ok=True)
    tree = changes.tree if name == INDEX and changes.tree else "HEAD"
    git("read-tree", tree, folder=path.parents[1], env=ISOLATED)
    return describe(path.lstat(), digest_content(path))
