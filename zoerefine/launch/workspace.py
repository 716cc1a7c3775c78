"""A workspace: the tree of one commit, checked, published by rename, and used by one run.

    <home>/workspaces/<name>-<commit>[-<diff digest>]/    the tree
    <home>/workspaces/<...>.lock                          shared by those who use it

A workspace is made once and shared by all runs of that commit; nobody writes to it. A clone that
borrows the mirror's objects costs the size of the working files alone.
"""

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from filelock import FileLock

from zoerefine.errors import UserError
from zoerefine.launch.git import git, git_bytes, uncommitted_files
from zoerefine.launch.repository import Source


@dataclass(frozen=True)
class Diff:
    """Uncommitted changes of a local source: one patch, new files included."""

    patch: bytes = b""

    @property
    def digest(self) -> str:
        """Empty where nothing was changed."""
        return sha256(self.patch).hexdigest() if self.patch else ""


def workspaces_of(home: Path) -> Path:
    """The folder of all workspaces."""
    return home / "workspaces"


def take_diff(source: Source, commit: str, allow_dirty: bool) -> Diff:
    """The uncommitted changes of a local source whose HEAD is launched.

    Raises `UserError` with the list of files where there are some and they are not allowed.
    """
    folder = source.folder
    if folder is None or git("rev-parse", "HEAD", folder=folder) != commit:
        return Diff()
    files = uncommitted_files(folder)
    if not files:
        return Diff()
    if not allow_dirty:
        shown = ", ".join(files[:8]) + (f" and {len(files) - 8} more" if len(files) > 8 else "")
        raise UserError(
            f"{folder} has uncommitted changes: {shown}; commit them, or give --allow-dirty to "
            "record them with the run"
        )
    # A copy of the index sees new files without touching the user's own index.
    index = Path(git("rev-parse", "--absolute-git-dir", folder=folder)) / "index"
    copy = index.with_name(f"index.{uuid.uuid4().hex[:8]}")
    try:
        shutil.copy2(index, copy)
        env = {"GIT_INDEX_FILE": str(copy)}
        git("add", "--all", folder=folder, env=env)
        return Diff(git_bytes("diff", "--cached", "--binary", commit, folder=folder, env=env))
    finally:
        copy.unlink(missing_ok=True)


@contextmanager
def workspace(source: Source, mirror: Path, commit: str, diff: Diff, home: Path) -> Iterator[Path]:
    """The commit's tree with the diff applied, made if needed, kept from cleaning meanwhile."""
    name = f"{source.name}-{commit}" + (f"-{diff.digest[:12]}" if diff.patch else "")
    folder = workspaces_of(home) / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{name}.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with FileLock(f"{folder}.make"):
            if not folder.exists():
                make(folder, mirror, commit, diff)
        os.utime(folder)  # --clean goes by the time of the last use
        yield folder


def make(folder: Path, mirror: Path, commit: str, diff: Diff) -> None:
    """Check out into a temporary folder, verify it, and rename it into place."""
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        git("clone", "--quiet", "--shared", "--no-checkout", "--", mirror, temporary)
        git("checkout", "--quiet", "--detach", commit, folder=temporary)
        verify(temporary, commit)
        if diff.patch:
            git("apply", "--binary", "--whitespace=nowarn", "-", folder=temporary, stdin=diff.patch)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def verify(folder: Path, commit: str) -> None:
    """Raises `UserError` unless a tree is exactly the commit's."""
    if git("rev-parse", "HEAD", folder=folder) != commit:
        raise UserError(f"{folder} does not stand at {commit}: the mirror is damaged, delete it")
    changed = uncommitted_files(folder)
    if changed:
        raise UserError(
            f"a fresh checkout of {commit[:12]} differs from the commit in {changed[0]}: is a "
            "filter or line-ending setting at work?"
        )
