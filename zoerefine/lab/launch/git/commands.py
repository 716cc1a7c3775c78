"""Runs git: without a shell, without prompts, and isolated from user input.

Words that may be a URL, or options that name programs, are checked by GitPython first. A second
launch of a commit has none of these. Importing GitPython takes about 40 ms, a fifth of that launch,
so it is imported only then.
"""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.settings import (
    GITLINK,
    ISOLATED,
    NO_TEMPLATE,
    NOT_INSTALLED,
    OPTIONS,
    SETTINGS,
    UPLOAD_PACK,
    GitError,
    clean_environment,
    error_line,
    foreign_settings,
)

TAKES_URL = {"fetch", "remote"}
CHECKED = {"init", *TAKES_URL}  # commands that could run programs
# Options that GitPython holds to be unsafe, with the values that make ours safe.
OWN_OPTIONS = {NO_TEMPLATE, f"--upload-pack={UPLOAD_PACK}"}
REFRESH = "GIT_PYTHON_REFRESH"


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
    texts = [str(word) for word in words]
    with start_git(texts, folder, env, stdin is not None, pass_fds, foreign) as process:
        try:
            out, err = process.communicate(stdin)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        verb = next(word for word in texts if not word.startswith("-") and "=" not in word)
        raise GitError(f"git {verb} failed: {error_line(err.decode(errors='replace'))}")
    return out


def start_git(
    words: Sequence[str],
    folder: Path | None,
    env: Mapping[str, str] | None,
    takes_input: bool,
    pass_fds: Sequence[int] = (),
    foreign: bool = False,
) -> "subprocess.Popen[bytes]":
    """A process of git, its outputs in pipes. Raises `GitError` where it cannot be started."""
    if folder is not None and not folder.is_dir():
        raise GitError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}")
    own = foreign_settings(folder) if foreign and folder else {}
    if words[0] in CHECKED:
        check_words(words)
    try:
        return subprocess.Popen(
            ["git", *OPTIONS, *words],
            cwd=folder,
            env={**clean_environment(), **SETTINGS, **own, **(env or {})},
            stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=tuple(pass_fds),
        )
    except FileNotFoundError:
        raise UserError(NOT_INSTALLED) from None


@cache
def gitpython() -> Any:
    """GitPython, also where git is not installed.

    It runs `git version` then, and fails in a way that our caller's environment chooses.
    """
    former = os.environ.get(REFRESH)
    os.environ[REFRESH] = "quiet"
    try:
        import git
    finally:
        del os.environ[REFRESH]
        if former is not None:
            os.environ[REFRESH] = former
    return git


def check_words(words: Sequence[str]) -> None:
    """Raises `GitError` for options and protocols that could run a program, as GitPython sees it.

    Nothing else of GitPython is used: `Git` can only add variables to those of our caller, `Repo`
    follows them, expands `$NAME` in paths and reads the files that a repository's configuration
    includes, and `Remote.fetch` logs what the server prints.
    """
    python = gitpython()
    unsafe = {"fetch": python.Remote.unsafe_git_fetch_options,
              "init": python.Repo.unsafe_git_init_options}  # fmt: skip
    verb, rest = words[0], [word for word in words[1:] if word not in OWN_OPTIONS]
    try:
        if verb in unsafe:
            options = [word for word in rest if word.startswith("-")]
            python.Git.check_unsafe_options(options, unsafe[verb])
        if verb in TAKES_URL:
            for word in rest:
                python.Git.check_unsafe_protocols(word)
    except (python.UnsafeOptionError, python.UnsafeProtocolError) as error:
        reason = str(error).partition(", use ")[0]  # then: how to allow it
        raise GitError(f"git {verb} is refused: {reason}") from None


@contextmanager
def object_reader(repository: Path) -> Iterator[Callable[[str], bytes]]:
    """While entered, one git process gives objects' contents by their ids.

    The function that it yields raises `UserError` for an object that git cannot read.
    """
    process = start_git(["cat-file", "--batch"], repository, ISOLATED, takes_input=True)

    def read(one: str) -> bytes:
        assert process.stdin and process.stdout
        with suppress(OSError):  # it has ended
            process.stdin.write(f"{one}\n".encode())
            process.stdin.flush()
        *_, size = process.stdout.readline().split() or [b"missing"]
        if size.isdigit():
            content = process.stdout.read(int(size) + 1)[:-1]  # a newline follows
            if len(content) == int(size):
                return content
        raise unreadable(process, repository, one)

    with process:
        yield read


def unreadable(process: "subprocess.Popen[bytes]", repository: Path, one: str) -> UserError:
    """Why the process that reads objects did not give one of them. Ends the process."""
    _, errors = process.communicate()
    if message := errors.decode(errors="replace").strip():
        return GitError(f"git cat-file failed: {error_line(message)}")
    return UserError(f"{repository} does not have the object {one}")


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
    names = [entry.partition("\t")[2] for entry in entries if entry.startswith(GITLINK)]
    return [name for name in names if (folder / name / ".git").exists()]
