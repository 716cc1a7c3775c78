"""Runs git: without a shell, without prompts, and isolated from user input.

The commands that bring a commit here go through GitPython (`hardened_git.py`), which refuses unsafe
options and protocols. So do reads of many objects, which share one process of GitPython's.

Every other command starts git directly. They read, or make an index again, and a second launch of a
commit needs no others: the import of GitPython would make it a fifth slower. They are also the
commands that run in a user's own repository.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.settings import (
    NOT_INSTALLED,
    OPTIONS,
    SETTINGS,
    GitError,
    clean_environment,
    error_line,
    foreign_settings,
)

THROUGH_GITPYTHON = {
    *("init", "config", "remote", "fetch", "update-ref"),
    *("checkout", "checkout-index", "apply", "lfs"),
}


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
    check_folder(folder)
    texts = [str(word) for word in words]
    own = foreign_settings(folder) if foreign and folder else {}
    variables = dict(own) | dict(env or {})
    if texts[0] in THROUGH_GITPYTHON:
        from zoerefine.lab.launch.git import hardened

        code, out, err = hardened.run(texts, folder, variables, stdin, pass_fds)
    else:
        code, out, err = run_directly(texts, folder, variables, stdin, pass_fds)
    if code:
        verb = next(word for word in texts if not word.startswith("-") and "=" not in word)
        raise GitError(f"git {verb} failed: {error_line(err)}")
    return out


def check_folder(folder: Path | None) -> None:
    """Raises `GitError` where git cannot be started in a folder."""
    if folder is not None and not folder.is_dir():
        raise GitError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}")


def run_directly(
    words: Sequence[str],
    folder: Path | None,
    variables: Mapping[str, str],
    stdin: bytes | None,
    pass_fds: Sequence[int],
) -> tuple[int, bytes, str]:
    """Run git without GitPython; returns its exit code and what it printed."""
    try:
        done = subprocess.run(
            ["git", *OPTIONS, *words],
            cwd=folder,
            env=clean_environment() | SETTINGS | dict(variables),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            check=False,
            pass_fds=tuple(pass_fds),
        )
    except FileNotFoundError:
        raise UserError(NOT_INSTALLED) from None
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def object_reader(repository: Path) -> AbstractContextManager[Callable[[str], bytes]]:
    """While entered, a function that gives an object's content by its id; raises `UserError`."""
    from zoerefine.lab.launch.git import hardened

    return hardened.object_reader(repository)


def head_commit(folder: Path) -> str:
    """The 40-hex commit of HEAD in a user's folder; empty outside a repository."""
    try:
        return git("rev-parse", "--verify", "HEAD^{commit}", folder=folder, foreign=True)
    except GitError:
        return ""


def checkout_commit(folder: Path) -> str:
    """As `head_commit`; empty unless the folder is a checkout's root.

    An installed package lies in a folder that may be inside somebody else's repository.
    """
    return head_commit(folder) if (folder / ".git").exists() else ""


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
