"""A workspace: the tree of one commit, checked, published by rename, and used by one run at a time.

    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>          the tree
    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>.lock     held by the run that uses it
    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>.run      the run that used it last

A clone that borrows the mirror's objects costs the size of the working files alone. A later run
gets a free workspace if its tree still is the commit's; what a job left in one is never handed to
another run and never deleted, except by `--clean`.
"""

import itertools
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
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
    """A tree that is ours: its folder, and the descriptor of the lock that says so."""

    folder: Path
    lock: int


def workspaces_of(home: Path) -> Path:
    """The folder of all workspaces."""
    return home / "workspaces"


@contextmanager
def workspace(
    source: RepositoryAddress, mirror: Path, commit: str, changes: Changes, home: Path, run: Path
) -> Iterator[Workspace]:
    """The commit's tree with the changes applied, for one run; made where none is free.

    A run that goes on gets the workspace that it had, with what it left there.
    """
    label = commit + (f"-{changes.digest[:12]}" if changes.patch else "")
    base = workspaces_of(home) / mirror.stem / label
    for slot in slots(base, run):
        with try_lock(Path(f"{slot}.lock")) as held:
            if held is None:
                continue
            if not slot.exists():
                make(slot, source, mirror, commit, changes, home, held)
            elif not is_intact(slot, commit, changes, last_run(slot) == str(run)):
                continue
            Path(f"{slot}.run").write_text(f"{run}\n", encoding="utf-8")
            os.utime(slot)  # --clean goes by the time of the last use
            yield Workspace(slot, held)
            return


def slots(base: Path, run: Path) -> Iterator[Path]:
    """Where a run may work, best first: where it worked before, then by number, without end."""
    for marker in sorted(base.parent.glob(f"{base.name}.*.run")):
        slot = marker.with_suffix("")
        if slot.exists() and last_run(slot) == str(run):
            yield slot
    for number in itertools.count():
        yield base.with_name(f"{base.name}.{number}")


def last_run(slot: Path) -> str:
    """The run that used a workspace last; empty where there was none."""
    try:
        return Path(f"{slot}.run").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def make(
    slot: Path,
    source: RepositoryAddress,
    mirror: Path,
    commit: str,
    changes: Changes,
    home: Path,
    held: int,
) -> None:
    """Check out into a temporary folder, verify it, and rename it into place."""
    remove_leftovers(slot)
    temporary = slot.with_name(f".{slot.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        check_out(temporary, source, mirror, commit, home, held)
        if changes.patch:
            words = ("apply", "--index", "--binary", "--whitespace=nowarn", "-")
            git(*words, folder=temporary, env=ISOLATED, stdin=changes.patch)
        if not is_intact(temporary, commit, changes, leftovers=False):
            raise UserError(
                f"a fresh checkout of {commit[:12]} differs from the commit: the mirror {mirror} "
                "may be damaged; delete it and try again"
            )
        os.replace(temporary, slot)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(slot: Path) -> None:
    """Remove what a killed launch left half-made; the caller holds the slot's lock."""
    for leftover in slot.parent.glob(f".{slot.name}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)


def check_out(
    folder: Path,
    source: RepositoryAddress,
    mirror: Path,
    commit: str,
    home: Path,
    held: int,
    depth: int = 0,
) -> None:
    """The tree of a commit with its submodules and LFS files, borrowing the mirror's objects."""
    check_depth(depth)
    borrow(folder, mirror, commit)
    git("remote", "add", "--", "origin", source.url, folder=folder)
    lfs = uses_lfs(folder)
    if lfs:
        set_up_lfs(folder, mirror)
    git("checkout", "--quiet", "--detach", commit, folder=folder, env=ISOLATED, keep=(held,))
    if lfs:
        pull_lfs(folder, source)
    for submodule in submodules_of(folder, commit):
        place = folder / submodule.path
        if not place.resolve().is_relative_to(folder.resolve()) or place.is_symlink():
            raise UserError(f"submodule {submodule.path} of {source.url} lies outside of its tree")
        inner, inner_mirror = fetch_submodule(source, submodule, home)
        check_out(place, inner, inner_mirror, submodule.commit, home, held, depth + 1)


def borrow(folder: Path, mirror: Path, commit: str) -> None:
    """A repository without files that uses a mirror's objects, and has its branches and tags.

    `git clone --shared` would not: it copies from a mirror that is shallow.
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


def is_intact(folder: Path, commit: str, changes: Changes, leftovers: bool) -> bool:
    """Whether a tree is exactly the commit's with the changes; `leftovers` allows new files.

    The index must write the very tree that is wanted, and the files must be the index's.
    """
    try:
        head, tree = git("rev-parse", "HEAD", f"{commit}^{{tree}}", folder=folder).split()
        wanted = changes.tree or tree
        same = head == commit and git("write-tree", folder=folder) == wanted
        words = ("status", "--porcelain=v1", "-z", "--no-renames", "-uall", "--ignored")
        text = git(*words, "--ignore-submodules=none", folder=folder, env=ISOLATED)
    except GitError:
        return False
    return same and all(_is_expected(entry, leftovers) for entry in text.split("\0") if entry)


def _is_expected(entry: str, leftovers: bool) -> bool:
    state, name = entry[:2], entry[3:]
    if state in ("??", "!!"):
        return leftovers or name.endswith(MADE_BY_PYTHON) or "__pycache__/" in name
    return state[1] == " "  # staged: that is the changes, and the index has been checked
