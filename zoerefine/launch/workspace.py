"""Workspaces: the files of one commit, verified, and used by one run at a time.

    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>          the files
    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>.lock     held by the run that uses it
    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>.run      the run that used it last, and
                                                                 the commit or tree of its files

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
from dataclasses import dataclass
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.launch.changes import Changes
from zoerefine.launch.git_commands import ISOLATED, GitError, git
from zoerefine.launch.repository_address import RepositoryAddress
from zoerefine.launch.submodules import (
    check_depth,
    fetch_submodule,
    pull_lfs,
    set_up_lfs,
    submodules_of,
    uses_lfs,
)
from zoerefine.locks import try_lock

MADE_BY_PYTHON = ("__pycache__/", ".pyc")


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
            elif not is_intact(folder, commit, changes, last_run(folder) == str(run)):
                continue
            marker = f"{run}\n{changes.tree or commit}\n"
            Path(f"{folder}.run").write_text(marker, encoding="utf-8", errors="surrogateescape")
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
    return _marker(folder)[0]


def checked_out_tree(folder: Path) -> str:
    """The commit or tree whose files a workspace was given."""
    return _marker(folder)[1]


def _marker(folder: Path) -> tuple[str, str]:
    try:
        text = Path(f"{folder}.run").read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return "", "HEAD"
    run, _, tree = text.strip().partition("\n")
    return run, tree or "HEAD"


def delete_folder(folder: Path) -> None:
    """Delete a workspace or another folder of its kind. The caller holds its lock.

    It is renamed first, so that a kill in the middle leaves nothing that looks complete.
    """
    doomed = folder.with_name(f".{folder.name}.removed.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
    Path(f"{folder}.run").unlink(missing_ok=True)


def make(
    folder: Path,
    address: RepositoryAddress,
    mirror: Path,
    commit: str,
    changes: Changes,
    home: Path,
    lock_fd: int,
) -> None:
    """Check out into a temporary folder, verify it, and rename it to `folder`."""
    remove_leftovers(folder)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        check_out(temporary, address, mirror, commit, home, lock_fd)
        if changes.patch:
            words = ("apply", "--index", "--binary", "--whitespace=nowarn", "-")
            git(*words, folder=temporary, env=ISOLATED, stdin=changes.patch)
        if not is_intact(temporary, commit, changes, new_files=False):
            raise UserError(
                f"a fresh checkout of {commit[:12]} differs from the commit: the mirror {mirror} "
                "may be damaged; delete it and try again"
            )
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary folders of killed launches. The caller holds the workspace's lock."""
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


def check_out(
    folder: Path,
    address: RepositoryAddress,
    mirror: Path,
    commit: str,
    home: Path,
    lock_fd: int,
    depth: int = 0,
) -> None:
    """Check a commit out with its submodules and LFS files, borrowing the mirror's objects."""
    check_depth(depth)
    init_from_mirror(folder, mirror, commit)
    git("remote", "add", "--", "origin", address.url, folder=folder)
    lfs = uses_lfs(folder)
    if lfs:
        set_up_lfs(folder, mirror)
    words = ("checkout", "--quiet", "--detach", commit)
    git(*words, folder=folder, env=ISOLATED, pass_fds=(lock_fd,))
    if lfs:
        pull_lfs(folder, address)
    for submodule in submodules_of(folder, commit):
        place = folder / submodule.path
        if not place.resolve().is_relative_to(folder.resolve()) or place.is_symlink():
            raise UserError(f"submodule {submodule.path} of {address.url} is outside of its tree")
        inner, inner_mirror = fetch_submodule(address, submodule, home)
        check_out(place, inner, inner_mirror, submodule.commit, home, lock_fd, depth + 1)


def init_from_mirror(folder: Path, mirror: Path, commit: str) -> None:
    """A repository without files that uses a mirror's objects and has its branches and tags.

    `git clone --shared` does not serve: it copies the objects of a shallow mirror.
    """
    git("init", "--quiet", "--template=", folder, env=ISOLATED)
    own = folder / ".git"
    (own / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (own / "objects" / "info" / "alternates").write_bytes(os.fsencode(f"{mirror}/objects\n"))
    if (mirror / "shallow").exists():
        shutil.copyfile(mirror / "shallow", own / "shallow")
    names = ("for-each-ref", "--format=create %(refname) %(objectname)", "refs/heads", "refs/tags")
    refs = git(*names, folder=mirror).replace("create refs/heads/", "create refs/remotes/origin/")
    lines = f"{refs}\noption no-deref\nupdate HEAD {commit}\n".lstrip()
    git("update-ref", "--stdin", folder=folder, stdin=os.fsencode(lines))


def is_intact(folder: Path, commit: str, changes: Changes, new_files: bool) -> bool:
    """Whether the files are exactly the commit's with the changes.

    The index must give the expected tree, and the files must match the index.

    Args:
        new_files: whether files that are not in the commit are allowed.
    """
    try:
        head, tree = git("rev-parse", "HEAD", f"{commit}^{{tree}}", folder=folder).split()
        expected = changes.tree or tree
        same = head == commit and git("write-tree", folder=folder) == expected
        words = ("status", "--porcelain=v1", "-z", "--no-renames", "-uall", "--ignored")
        text = git(*words, "--ignore-submodules=none", folder=folder, env=ISOLATED)
    except GitError:
        return False
    return same and all(_is_expected(entry, new_files) for entry in text.split("\0") if entry)


def _is_expected(entry: str, new_files: bool) -> bool:
    state, name = entry[:2], entry[3:]
    if state in ("??", "!!"):
        return new_files or name.endswith(MADE_BY_PYTHON) or "__pycache__/" in name
    return state[1] == " "  # staged: one of the changes, and the index was checked
