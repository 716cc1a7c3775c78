"""Uncommitted changes of a local source: refused with their names, or taken along as one patch."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.launch.git_commands import git, git_bytes, head_commit, uncommitted_files
from zoerefine.launch.redaction import find_secret
from zoerefine.launch.repository_address import RepositoryAddress
from zoerefine.progress import say

LARGEST = 64 * 2**20
# The user's own display settings would make a patch that does not apply.
PLAIN = (
    *("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv"),
    *("--no-color", "--src-prefix=a/", "--dst-prefix=b/", "--ignore-submodules=all"),
)


@dataclass(frozen=True)
class Changes:
    """What a working tree holds beyond its commit.

    Attributes:
        patch: new files included; empty where nothing was changed.
        tree: the 40-hex tree that the commit becomes with it; empty where nothing was changed.
        files: the names.
    """

    patch: bytes = b""
    tree: str = ""
    files: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the patch; empty where nothing was changed."""
        return sha256(self.patch).hexdigest() if self.patch else ""


def take_changes(
    source: RepositoryAddress, commit: str, allow_dirty: bool, config: Path
) -> Changes:
    """The uncommitted changes of a local source whose HEAD is launched.

    The config that is launched is none of them: every run keeps the one it was given.

    Raises:
        UserError: with the list of files, where there are some and they are not allowed; they
            are too large to keep with a run; they hold a secret; a submodule was changed.
    """
    folder = source.folder
    if folder is None:
        return Changes()
    if head_commit(folder) != commit:
        if allow_dirty and uncommitted_files(folder):
            say(f"changes in {folder} belong to its HEAD, not to {commit[:12]}: left out")
        return Changes()
    files = [name for name in uncommitted_files(folder) if not is_same(folder / name, config)]
    if not files:
        return Changes()
    if not allow_dirty:
        raise UserError(
            f"{folder} has uncommitted changes: {shown(files)}; commit them, or give "
            "--allow-dirty to record them with the run"
        )
    check_size(folder, files)
    return record(folder, commit, files)


def is_same(path: Path, other: Path) -> bool:
    """Whether two paths name one file; a removed one is none."""
    return path.exists() and other.exists() and path.samefile(other)


def shown(names: Sequence[str]) -> str:
    """A list of names, cut where it gets long."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def check_size(folder: Path, files: Sequence[str]) -> None:
    """Raises `UserError` where changed files are too large to be kept with every run."""
    sizes = {name: path.stat().st_size for name in files if (path := folder / name).is_file()}
    if sum(sizes.values()) > LARGEST:
        worst = max(sizes, key=lambda name: sizes[name])
        raise UserError(
            f"{folder} has {sum(sizes.values()) / 2**20:.0f} MB of uncommitted files, most of all "
            f"{worst}: name data in .gitignore, or commit them"
        )


def record(folder: Path, commit: str, files: Sequence[str]) -> Changes:
    """One patch of all changes. The user's own index and objects are only read."""
    own = {
        name: folder / git("rev-parse", "--git-path", name, folder=folder)
        for name in ("index", "objects")
    }
    with tempfile.TemporaryDirectory(prefix="zoerefine-") as scratch:
        index = Path(scratch) / "index"
        if own["index"].exists():
            shutil.copy2(own["index"], index)
        env = {
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(own["objects"]),
        }
        git("add", "--all", "--ignore-errors", folder=folder, env=env)
        check_submodules(folder, commit, env)
        patch = git_bytes("diff-index", "--cached", "-p", *PLAIN, commit, folder=folder, env=env)
        tree = git("write-tree", folder=folder, env=env)
    name = find_secret(patch)
    if name:
        raise UserError(
            f"the uncommitted changes of {folder} hold the secret of {name}, and a run keeps them "
            "in a file: read it from the environment instead"
        )
    return Changes(patch, tree, tuple(files)) if patch else Changes()


def check_submodules(folder: Path, commit: str, env: dict[str, str]) -> None:
    """Raises `UserError` where a submodule was changed or moved: a patch cannot carry that."""
    # A submodule's entries have mode 160000.
    words = ("diff-index", "--raw", "--no-renames", "--ignore-submodules=none", "-z", commit)
    entries = git(*words, folder=folder, env=env).split("\0")
    for facts, name in zip(entries[::2], entries[1::2], strict=False):
        if "160000" in facts.split()[:2] or ":160000" in facts:
            raise UserError(
                f"submodule {name} of {folder} has changes: commit them there and here, a run "
                "cannot record them"
            )
