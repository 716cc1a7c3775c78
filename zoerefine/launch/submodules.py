"""What a commit holds beyond its own files: submodules and Git LFS objects."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.launch.git_commands import ISOLATED, GitError, git
from zoerefine.launch.repository import fetch_commit
from zoerefine.launch.repository_address import RepositoryAddress, open_source, open_submodule

DEEPEST = 8
GITLINK = "160000"


@dataclass(frozen=True)
class Submodule:
    """A repository inside a commit's tree: where, at which commit, and from where."""

    path: str
    commit: str
    url: str


def submodules_of(repository: Path, commit: str) -> Iterator[Submodule]:
    """The submodules that a commit names. Raises `UserError` for one without a URL."""
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
    """The source and the mirror of a submodule, holding its commit.

    A local working tree's own checkout comes first: its commit may not be pushed yet.
    """
    if parent.folder is not None and (parent.folder / submodule.path / ".git").exists():
        try:
            source = open_source(str(parent.folder / submodule.path))
            return source, fetch_commit(source, submodule.commit, home)[0]
        except UserError:
            pass
    source = open_submodule(parent, submodule.url)
    return source, fetch_commit(source, submodule.commit, home)[0]


def check_depth(depth: int) -> None:
    """Raises `UserError` for submodules that may hold themselves."""
    if depth > DEEPEST:
        raise UserError(f"submodules lie more than {DEEPEST} deep in each other")


def uses_lfs(folder: Path) -> bool:
    """Whether a checkout has files kept in Git LFS."""
    try:
        git("grep", "-q", "filter=lfs", "HEAD", "--", ":(glob)**/.gitattributes", folder=folder)
    except GitError:
        return False
    return True


def set_up_lfs(folder: Path, mirror: Path) -> None:
    """Let a repository use Git LFS, its objects kept beside the mirror's. Raises `UserError`."""
    if shutil.which("git-lfs") is None:
        raise UserError(
            "the commit keeps files in Git LFS, and git-lfs is not installed: install it "
            "(e.g. apt install git-lfs)"
        )
    git("lfs", "install", "--local", "--skip-smudge", "--skip-repo", folder=folder, env=ISOLATED)
    git("config", "lfs.storage", str(mirror / "lfs"), folder=folder)


def pull_lfs(folder: Path, source: RepositoryAddress) -> None:
    """Bring the contents of Git LFS files. Raises `UserError` where one cannot be had."""
    try:
        git("lfs", "pull", folder=folder, env=ISOLATED | source.environment())
        missing = [n for n in git("lfs", "ls-files", folder=folder).splitlines() if " - " in n]
    except GitError as error:
        raise UserError(f"the Git LFS files of {source.url} cannot be had: {error}") from None
    if missing:
        raise UserError(f"{source.url} has no Git LFS content for {missing[0].split(' - ')[1]}")
