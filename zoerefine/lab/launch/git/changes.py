"""Uncommitted changes of a local repository: refused by name, or recorded as one patch."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.messages import first_few, say
from zoerefine.base.run_dir import REPORT_FILE
from zoerefine.base.secrets import find_secret
from zoerefine.lab.launch.git.address import RepositoryAddress
from zoerefine.lab.launch.git.commands import (
    GITLINK,
    LFS,
    GitError,
    git,
    git_bytes,
    head_commit,
    own_keys,
    write_alternates,
)

MAX_BYTES = 64 * 2**20
# The user's own display settings could give a patch that does not apply, or another one for the
# same changes.
PATCH_SETTINGS = (
    *("-c", "diff.suppressBlankEmpty=false", "-c", "diff.orderFile=", "-c", "core.quotePath=true"),
)
PATCH_OPTIONS = (
    *("--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic"),
    *("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv"),
    *("--no-color", "--src-prefix=a/", "--dst-prefix=b/", "--ignore-submodules=all"),
)
WHOLE = ("-c", "core.sparseCheckout=false")  # with files beside those of a sparse checkout


@dataclass(frozen=True)
class Changes:
    """The uncommitted changes of a working tree. Every field is empty where there are none.

    Attributes:
        patch: all changes, with new files.
        tree: the 40-hex tree of the commit with the patch applied.
        files: the names of the changed files.
        untracked: files that are in no commit and not in the patch, so the job does not have them.
    """

    patch: bytes = b""
    tree: str = ""
    files: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the patch; empty where there are no changes."""
        return sha256(self.patch).hexdigest() if self.patch else ""


def read_changes(
    address: RepositoryAddress, commit: str, allow_dirty: bool, config: Path
) -> Changes:
    """The uncommitted changes of a local repository whose HEAD is launched.

    The launched config does not count as a change, since every run keeps a copy of it.

    Raises `UserError` where files of the commit were changed and that is not allowed, the changes
    are too large to keep with a run or contain a secret, or a submodule was changed.
    """
    folder = address.folder
    if folder is None:
        return Changes()
    if head_commit(folder) != commit:
        if allow_dirty and uncommitted_files(folder):
            say(
                f"uncommitted changes of {folder} are left out: they belong to HEAD, and the job "
                f"runs {commit[:12]}"
            )
        return Changes()
    with index_copy(folder) as env:
        changed, untracked = (
            [name for name in names if not is_same(folder / name, config)]
            for names in changed_and_untracked_files(folder, env)
        )
        if changed and not allow_dirty:
            raise UserError(
                f"{folder} has uncommitted changes: {first_few(changed)}; commit them, or for a "
                f"single run give --allow-dirty to record them with it{filter_hint(folder)}"
            )
        files = [*changed, *untracked] if allow_dirty else []
        if not files:
            return Changes(untracked=tuple(untracked))
        check_size(folder, files)
        return make_patch(folder, commit, files, env)


def uncommitted_files(folder: Path) -> list[str]:
    """Changed, staged, deleted and untracked files of a working tree, without ignored ones."""
    with index_copy(folder) as env:
        changed, untracked = changed_and_untracked_files(folder, env)
    return [*changed, *untracked]


def changed_and_untracked_files(
    folder: Path, env: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The changed, staged and deleted files of a working tree, and those that git does not know.

    Those of its submodules are named, too.

    Args:
        env: of `index_copy`.
    """
    # With renames an entry would hold two names. Git would look into submodules with their own
    # configuration.
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "-uall")
    text = git(*words, "--ignore-submodules=dirty", folder=folder, env=env, foreign=True)
    entries = [(entry[:2], entry[3:]) for entry in text.split("\0") if entry]
    changed = [name for state, name in entries if state != "??"]
    untracked = [name for state, name in entries if state == "??"]
    for place in submodule_folders(folder):
        with index_copy(folder / place) as inner_env:
            inner = changed_and_untracked_files(folder / place, inner_env)
        changed += [f"{place}/{name}" for name in inner[0]]
        untracked += [f"{place}/{name}" for name in inner[1]]
    return changed, untracked


@contextmanager
def index_copy(folder: Path) -> Iterator[dict[str, str]]:
    """Variables under which git uses a copy of the index that hides no file of the working tree.

    The user may have told git not to look at files: `git update-index --assume-unchanged` or
    `--skip-worktree`. A sparse checkout marks the files that it leaves out; they stay marked.
    """
    own = folder / git("rev-parse", "--git-path", "index", folder=folder, foreign=True)
    with tempfile.TemporaryDirectory(prefix="zoerefine-") as scratch:
        index = Path(scratch) / "index"
        if own.exists():
            shutil.copy2(own, index)
        env = {"GIT_INDEX_FILE": str(index)}
        words = ("ls-files", "-v", "-z")
        entries = git(*WHOLE, *words, folder=folder, env=env, foreign=True).split("\0")
        hidden = [
            name
            for tag, _, name in (entry.partition(" ") for entry in entries)
            if (os.path.lexists(folder / name) if tag in ("s", "S") else tag.islower())
        ]
        stdin = os.fsencode("\0".join(hidden))
        for option in ("--no-assume-unchanged", "--no-skip-worktree") if hidden else ():
            command = ("update-index", "-z", option, "--stdin")
            git(*command, folder=folder, env=env, stdin=stdin, foreign=True)
        yield env


def submodule_folders(folder: Path) -> list[str]:
    """The submodules of a working tree that are checked out."""
    if not (folder / ".gitmodules").exists():
        return []
    entries = git("ls-files", "--stage", "-z", folder=folder, foreign=True).split("\0")
    names = [entry.partition("\t")[2] for entry in entries if entry.startswith(GITLINK)]
    return [name for name in names if (folder / name / ".git").exists()]


def warn_of_untracked_files(address: RepositoryAddress, changes: Changes) -> None:
    """Name the files of a working tree that a job does not have, since no commit has them.

    Reports of `zoerefine analyze` are not named.
    """
    folder = address.folder or Path()
    named = [name for name in changes.untracked if not is_of_report(folder / name)]
    if named:
        say(
            f"warning: the job does not have these files of {folder}, which git does not track: "
            f"{first_few(named)}"
        )


def is_of_report(path: Path) -> bool:
    """Whether a file is in the folder of a report, or in one of its folders by metric."""
    return any((place / REPORT_FILE).is_file() for place in list(path.parents)[:2])


def is_same(path: Path, other: Path) -> bool:
    """Whether two paths are the same existing file."""
    return path.exists() and other.exists() and path.samefile(other)


def check_size(folder: Path, files: Sequence[str]) -> None:
    """Raises `UserError` where changed files are too large to keep with every run."""
    sizes = {name: path.stat().st_size for name in files if (path := folder / name).is_file()}
    if sum(sizes.values()) > MAX_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise UserError(
            f"{folder} has {sum(sizes.values()) / 2**20:.0f} MB of uncommitted files, the largest "
            f"is {largest}: list data in .gitignore, or commit them"
        )


def filter_hint(folder: Path) -> str:
    """Why files may count as changed that `git status` does not name, e.g. with nbstripout."""
    own = [key for key in own_keys(folder) if key.startswith("filter.") and key.endswith(".clean")]
    others = [key for key in own if key not in LFS]
    if not others:
        return ""
    return f". {others[0]} of its own .git/config is not run: set it with git config --global"


def make_patch(folder: Path, commit: str, files: Sequence[str], env: Mapping[str, str]) -> Changes:
    """One patch of all changes, by a copy of the index. The user's own objects are only read."""
    own = folder / git("rev-parse", "--git-path", "objects", folder=folder, foreign=True)
    scratch = Path(env["GIT_INDEX_FILE"]).parent
    env = {**env, "GIT_OBJECT_DIRECTORY": str(scratch)}
    write_alternates(scratch, own)
    git(*WHOLE, "add", "--all", "--ignore-errors", folder=folder, env=env, foreign=True)
    check_submodules(folder, commit, files, env)
    words = (*PATCH_SETTINGS, "diff-index", "--cached", "-p", *PATCH_OPTIONS, commit)
    patch = git_bytes(*words, folder=folder, env=env, foreign=True)
    tree = git("write-tree", folder=folder, env=env, foreign=True)
    check_secrets(folder, commit, patch, files)
    return Changes(patch, tree, tuple(files)) if patch else Changes()


def check_secrets(folder: Path, commit: str, patch: bytes, files: Sequence[str]) -> None:
    """Raises `UserError` where changes contain a secret, which every run would keep.

    In a patch the former and the new content of a binary file are compressed, so they are read.
    """
    now = (path.read_bytes() for name in files if (path := folder / name).is_file())
    binary = files if b"\nGIT binary patch\n" in patch else ()
    former = (committed_bytes(folder, commit, name) for name in binary)
    for content in itertools.chain([patch], now, former):
        if name := find_secret(content):
            raise UserError(
                f"the uncommitted changes of {folder} contain the secret of {name}, and a run "
                "would keep them in a file: let the code read it from the environment instead"
            )


def committed_bytes(folder: Path, commit: str, name: str) -> bytes:
    """A file's content in a commit; empty where the commit does not have it."""
    try:
        return git_bytes("cat-file", "blob", f"{commit}:{name}", folder=folder, foreign=True)
    except GitError:
        return b""


def check_submodules(folder: Path, commit: str, files: Sequence[str], env: dict[str, str]) -> None:
    """Raises `UserError` where a submodule was changed or moved, which a patch cannot record."""
    words = ("diff-index", "--raw", "--no-renames", "--ignore-submodules=dirty", "-z", commit)
    entries = git(*words, folder=folder, env=env, foreign=True).split("\0")
    moved = [
        name
        for facts, name in zip(entries[::2], entries[1::2], strict=False)
        if GITLINK in facts.split()[:2] or f":{GITLINK}" in facts
    ]
    inside = tuple(f"{name}/" for name in submodule_folders(folder))
    if changed := [*moved, *(name for name in files if name.startswith(inside))]:
        raise UserError(
            f"submodule {changed[0]} of {folder} has changes, which a run cannot record: commit "
            f"them in the submodule, and the submodule's new commit in {folder}"
        )
