"""Runs git as a program: without a shell, without prompts, and isolated from user input."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from zoerefine.errors import UserError
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
REPOSITORY_VARIABLES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE"),
    *("GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE", "GIT_CEILING_DIRECTORIES"),
}


class GitError(UserError):
    """Git failed; the sentence holds git's own first error line."""


def git(
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    pass_fds: Sequence[int] = (),
) -> str:
    """Run git and return what it printed, without the last newline. Raises `GitError`."""
    data = git_bytes(*words, folder=folder, env=env, stdin=stdin, pass_fds=pass_fds)
    return data.decode(errors="surrogateescape").rstrip("\n")


def git_bytes(
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    pass_fds: Sequence[int] = (),
) -> bytes:
    """Run git and return the bytes it printed. Raises `GitError`.

    Args:
        pass_fds: file descriptors of locks. Git inherits them, so if we are killed they stay
            locked until git ends.
    """
    try:
        done = subprocess.run(
            ["git", *OPTIONS, *map(str, words)],
            cwd=folder,
            env=clean_environment() | SETTINGS | dict(env or {}),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            check=False,
            pass_fds=tuple(pass_fds),
        )
    except FileNotFoundError:
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


def clean_environment() -> dict[str, str]:
    """Our environment variables without those that point git at another repository."""
    return {key: value for key, value in os.environ.items() if key not in REPOSITORY_VARIABLES}


def head_commit(folder: Path) -> str:
    """The 40-hex commit of HEAD in a folder; empty outside a repository."""
    try:
        return git("rev-parse", "--verify", "HEAD^{commit}", folder=folder)
    except GitError:
        return ""


def uncommitted_files(folder: Path) -> list[str]:
    """Changed, staged, deleted and untracked files of a working tree, without ignored ones."""
    changed, untracked = changed_and_untracked_files(folder)
    return [*changed, *untracked]


def changed_and_untracked_files(folder: Path) -> tuple[list[str], list[str]]:
    """The changed, staged and deleted files of a working tree, and those that git does not know."""
    # With renames an entry would hold two names.
    text = git("status", "--porcelain=v1", "-z", "--no-renames", "-uall", folder=folder)
    entries = [(entry[:2], entry[3:]) for entry in text.split("\0") if entry]
    changed = [name for state, name in entries if state != "??"]
    return changed, [name for state, name in entries if state == "??"]
