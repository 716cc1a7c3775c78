"""What a commit has beyond its own files: submodules and Git LFS files."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.address import RepositoryAddress, parse_address, submodule_address
from zoerefine.lab.launch.git.commands import git
from zoerefine.lab.launch.git.mirror import fetch_commit
from zoerefine.lab.launch.git.settings import ISOLATED, GitError

MAX_DEPTH = 8
GITLINK = "160000"
LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[^\n]*\n)*?oid sha256:([0-9a-f]{64})\n"
)
MAX_POINTER_BYTES = 1024


@dataclass(frozen=True)
class Submodule:
    """A repository inside a commit's tree: its path there, its commit, and its URL."""

    path: str
    commit: str
    url: str


def submodules_of(repository: Path, commit: str) -> Iterator[Submodule]:
    """The submodules of a commit. Raises `UserError` for one without a URL."""
    listing = git("ls-tree", "-r", "-z", "--full-tree", commit, folder=repository)
    links = [entry.split("\t", 1) for entry in listing.split("\0") if entry.startswith(GITLINK)]
    urls = _urls(repository, commit) if links else {}
    for facts, path in links:
        if path not in urls:
            raise UserError(f"commit {commit[:12]} has a submodule {path} without a URL")
        yield Submodule(path, facts.split()[2], urls[path])


def _urls(repository: Path, commit: str) -> dict[str, str]:
    try:
        text = git("config", "--blob", f"{commit}:.gitmodules", "--list", "-z", folder=repository)
    except GitError as error:
        raise UserError(f".gitmodules of commit {commit[:12]} cannot be read: {error}") from None
    fields: dict[str, dict[str, str]] = {}
    for entry in text.split("\0"):
        key, _, value = entry.partition("\n")
        name, _, field = key.rpartition(".")
        fields.setdefault(name, {})[field] = value
    return {
        found["path"]: found["url"] for found in fields.values() if {"path", "url"} <= set(found)
    }


def fetch_submodule(
    parent: RepositoryAddress, submodule: Submodule, home: Path
) -> tuple[RepositoryAddress, Path]:
    """The address of a submodule, and its mirror with the commit.

    In a local working tree the submodule's own checkout is tried first, since the commit may not
    be pushed yet.
    """
    if parent.folder is not None and (parent.folder / submodule.path / ".git").exists():
        try:
            address = parse_address(str(parent.folder / submodule.path))
            return address, fetch_commit(address, submodule.commit, home)[0]
        except UserError:
            pass
    address = submodule_address(parent, submodule.url)
    return address, fetch_commit(address, submodule.commit, home)[0]


def check_depth(depth: int) -> None:
    """Raises `UserError` for submodules that seem to contain themselves."""
    if depth > MAX_DEPTH:
        raise UserError(f"submodules are nested more than {MAX_DEPTH} deep")


def uses_lfs(folder: Path) -> bool:
    """Whether a checkout has files in Git LFS."""
    try:
        git("grep", "-q", "filter=lfs", "HEAD", "--", ":(glob)**/.gitattributes", folder=folder)
    except GitError:
        return False
    return True


def set_up_lfs(folder: Path, mirror: Path) -> None:
    """Enable Git LFS, with its files kept in the mirror. Raises `UserError` without git-lfs."""
    if shutil.which("git-lfs") is None:
        raise UserError(
            "the commit keeps files in Git LFS, and git-lfs is not installed: install it "
            "(e.g. apt install git-lfs)"
        )
    git("lfs", "install", "--local", "--skip-smudge", "--skip-repo", folder=folder, env=ISOLATED)
    git("config", "lfs.storage", str(mirror / "lfs"), folder=folder)


def pull_lfs(folder: Path, address: RepositoryAddress) -> None:
    """Fetch the contents of Git LFS files. Raises `UserError` where one cannot be fetched."""
    try:
        git("lfs", "pull", folder=folder, env=ISOLATED | address.environment())
        missing = [n for n in git("lfs", "ls-files", folder=folder).splitlines() if " - " in n]
    except GitError as error:
        raise UserError(f"Git LFS files of {address.url} cannot be fetched: {error}") from None
    if missing:
        raise UserError(f"{address.url} has no Git LFS content for {missing[0].split(' - ')[1]}")


def lfs_digest(content: bytes) -> str:
    """The SHA-256 of the file that a Git LFS pointer stands for; empty for other contents."""
    found = LFS_POINTER.match(content) if len(content) <= MAX_POINTER_BYTES else None
    return found[1].decode() if found else ""
