"""Runs git as a program: without a shell, without prompts, and isolated from user input."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.launch.foreign_settings import clean_environment, foreign_settings
from zoerefine.launch.redaction import hide_secrets

SETTINGS = {
    # A URL can name a program to run (`ext::`): only these transports are allowed.
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # A replacement object (git replace) would change the tree that a hash stands for.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
# No programs that a repository's own configuration names, and no automatic clean-up.
OPTIONS = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false"),
    *("-c", "checkout.workers=0"),  # one for each core: twice as fast on two cores
)
# A checkout must not depend on the user's settings (line endings, filters, templates).
ISOLATED = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


class GitError(UserError):
    """Git failed; the sentence holds git's own first error line."""


def git(
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    pass_fds: Sequence[int] = (),
    foreign: bool = False,
) -> str:
    """Run git and return what it printed, without the last newline. Raises `GitError`."""
    data = git_bytes(
        *words, folder=folder, env=env, stdin=stdin, pass_fds=pass_fds, foreign=foreign
    )
    return data.decode(errors="surrogateescape").rstrip("\n")


def git_bytes(
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    pass_fds: Sequence[int] = (),
    foreign: bool = False,
) -> bytes:
    """Run git and return the bytes it printed. Raises `GitError`.

    Args:
        pass_fds: file descriptors of locks. Git inherits them, so if we are killed they stay
            locked until git ends.
        foreign: the folder is a user's repository, whose own configuration must run nothing.
    """
    try:
        own = foreign_settings(folder) if foreign and folder else {}
        done = subprocess.run(
            ["git", *OPTIONS, *map(str, words)],
            cwd=folder,
            env=clean_environment() | SETTINGS | dict(own) | dict(env or {}),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            check=False,
            pass_fds=tuple(pass_fds),
        )
    except NotADirectoryError:
        raise GitError(f"{folder} is not a folder") from None
    except FileNotFoundError:
        if folder is not None and not folder.exists():
            raise GitError(f"{folder} does not exist") from None
        raise UserError("git is not installed: install it (e.g. apt install git)") from None
    if done.returncode:
        verb = next(
            word for word in words if not str(word).startswith("-") and "=" not in str(word)
        )
        raise GitError(f"git {verb} failed: {error_line(done.stderr.decode(errors='replace'))}")
    return done.stdout


def error_line(text: str) -> str:
    """The first error line of git's messages, or else the last line."""
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    named = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return hide_secrets((named or lines[-1:])[0])


def head_commit(folder: Path) -> str:
    """The 40-hex commit of HEAD in a user's folder; empty outside a repository."""
    try:
        return git("rev-parse", "--verify", "HEAD^{commit}", folder=folder, foreign=True)
    except GitError:
        return ""


def uncommitted_files(folder: Path) -> list[str]:
    """Changed, staged, deleted and untracked files of a working tree, without ignored ones."""
    changed, untracked = changed_and_untracked_files(folder)
    return [*changed, *untracked]


def changed_and_untracked_files(folder: Path) -> tuple[list[str], list[str]]:
    """The changed, staged and deleted files of a working tree, and those that git does not know.

    Those of its submodules are named, too.
    """
    # With renames an entry would hold two names. Git would look into submodules with their own
    # configuration.
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "-uall")
    text = git(*words, "--ignore-submodules=dirty", folder=folder, foreign=True)
    entries = [(entry[:2], entry[3:]) for entry in text.split("\0") if entry]
    changed = [name for state, name in entries if state != "??"]
    untracked = [name for state, name in entries if state == "??"]
    for place in submodule_folders(folder):
        inner = changed_and_untracked_files(folder / place)
        changed += [f"{place}/{name}" for name in inner[0]]
        untracked += [f"{place}/{name}" for name in inner[1]]
    return changed, untracked


def submodule_folders(folder: Path) -> list[str]:
    """The submodules of a working tree that are checked out."""
    if not (folder / ".gitmodules").exists():
        return []
    entries = git("ls-files", "--stage", "-z", folder=folder, foreign=True).split("\0")
    names = [entry.partition("\t")[2] for entry in entries if entry.startswith("160000")]
    return [name for name in names if (folder / name / ".git").exists()]
