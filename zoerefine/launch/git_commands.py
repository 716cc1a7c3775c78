"""Git, called as a program: no shell, no prompts, no helpers or options smuggled in by input."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.launch.redaction import hide_secrets

SETTINGS = {
    # A URL can name a helper program to run (`ext::`): only these transports are let through.
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # A replaced object would let one hash mean another tree.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
# What a repository's own configuration could run, and housekeeping behind our back.
OPTIONS = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false"),
    *("-c", "checkout.workers=0"),  # one for each core: twice as fast on two
)
# A checkout must not depend on who makes it (line endings, filters, templates).
ISOLATED = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
OF_ANOTHER_REPOSITORY = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE"),
    *("GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE", "GIT_CEILING_DIRECTORIES"),
}


class GitError(UserError):
    """Git refused; the sentence is the first fault that it names."""


def git(
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    keep: Sequence[int] = (),
) -> str:
    """Run git and return what it printed, without the last newline. Raises `GitError`."""
    data = git_bytes(*words, folder=folder, env=env, stdin=stdin, keep=keep)
    return data.decode(errors="surrogateescape").rstrip("\n")


def git_bytes(
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    keep: Sequence[int] = (),
) -> bytes:
    """Run git and return the bytes it printed. Raises `GitError`.

    Args:
        keep: descriptors of locks that stay held until git itself is gone, should we be killed.
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
            pass_fds=tuple(keep),
        )
    except FileNotFoundError:
        raise UserError("git is not installed: install it (e.g. apt install git)") from None
    if done.returncode:
        verb = next(
            word for word in words if not str(word).startswith("-") and "=" not in str(word)
        )
        raise GitError(f"git {verb} failed: {fault(done.stderr.decode(errors='replace'))}")
    return done.stdout


def fault(text: str) -> str:
    """The line of git's messages that says what is wrong."""
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    named = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return hide_secrets((named or lines[-1:])[0])


def clean_environment() -> dict[str, str]:
    """This process's environment without what would point git at another repository."""
    return {key: value for key, value in os.environ.items() if key not in OF_ANOTHER_REPOSITORY}


def head_commit(folder: Path) -> str:
    """The 40-hex commit that a folder's tree stands at; empty outside a repository."""
    try:
        return git("rev-parse", "--verify", "HEAD^{commit}", folder=folder)
    except GitError:
        return ""


def uncommitted_files(folder: Path) -> list[str]:
    """Changed, staged, deleted and untracked (not ignored) files of a working tree."""
    # Renames would put two names into one entry.
    text = git("status", "--porcelain=v1", "-z", "--no-renames", "-uall", folder=folder)
    return [entry[3:] for entry in text.split("\0") if entry]
