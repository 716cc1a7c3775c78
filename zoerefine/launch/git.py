"""Git, called as a program: no shell, no prompts, no helpers or options smuggled in by input."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from zoerefine.errors import UserError

# A URL can name a helper program to run (`ext::`): only these transports are let through.
SETTINGS = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


class GitError(UserError):
    """Git refused; the sentence is its own last line."""


def git(
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> str:
    """Run git and return what it printed, without the last newline. Raises `GitError`."""
    return git_bytes(*words, folder=folder, env=env, stdin=stdin).decode(errors="replace").rstrip()


def git_bytes(
    *words: str | Path,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> bytes:
    """Run git and return the bytes it printed. Raises `GitError`."""
    try:
        done = subprocess.run(
            ["git", *map(str, words)],
            cwd=folder,
            env=clean_environment() | SETTINGS | dict(env or {}),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise UserError("git is not installed: install it (e.g. apt install git)") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise GitError(f"git {words[0]} failed: {lines[-1]}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """This process's environment without what would point git at another repository."""
    repository = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}
    return {key: value for key, value in os.environ.items() if key not in repository}


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
