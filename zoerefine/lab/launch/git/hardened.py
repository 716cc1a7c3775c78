"""GitPython with the options and variables of `git_settings.py`. No other module imports it.

Importing GitPython takes about 40 ms, a fifth of a second launch, so `git_commands.py` imports this
module only where a command needs it. It says which do.

Of GitPython this uses `Git`, its checks for unsafe options and protocols, and its process that
reads objects one by one. It does not use

- `Repo`: it follows GIT_COMMON_DIR, GIT_WORK_TREE and GIT_OBJECT_DIRECTORY of our caller, expands
  `$NAME` in paths, and reads the files that a repository's configuration includes.
- `Remote.fetch`: it refuses our own --upload-pack, which keeps a user's repository from running
  programs, and logs what the server prints.
- `Remote.create`: it replaces backslashes in paths.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.settings import (
    ISOLATED,
    NO_TEMPLATE,
    NOT_INSTALLED,
    OPTIONS,
    REPOSITORY_VARIABLES,
    SETTINGS,
    UPLOAD_PACK,
    GitError,
    error_line,
)

REFRESH = "GIT_PYTHON_REFRESH"


@contextmanager
def quiet_refresh() -> Iterator[None]:
    """While entered, GitPython can be imported where git is not installed.

    It runs `git version` then, and fails in a way that our caller's environment chooses.
    """
    former = os.environ.get(REFRESH)
    os.environ[REFRESH] = "quiet"
    try:
        yield
    finally:
        del os.environ[REFRESH]
        if former is not None:
            os.environ[REFRESH] = former


with quiet_refresh():
    from git import Git, GitCommandNotFound, Remote, Repo, UnsafeOptionError, UnsafeProtocolError

UNSAFE_OPTIONS = {
    "fetch": Remote.unsafe_git_fetch_options,
    "init": Repo.unsafe_git_init_options,
}
TAKES_URL = {"fetch", "remote"}
# Options that GitPython holds to be unsafe, with the values that make ours safe.
OWN_OPTIONS = {NO_TEMPLATE, f"--upload-pack={UPLOAD_PACK}"}


class HardenedGit(Git):
    """Runs git with our options and variables, whichever method of GitPython starts it.

    Args:
        folder: an existing folder, or None for the current one.
        variables: environment variables besides `SETTINGS`.
    """

    GIT_PYTHON_TRACE = False  # a trace would log what git prints

    def __init__(self, folder: Path | None, variables: Mapping[str, str]) -> None:
        super().__init__(folder)  # no text: GitPython would expand `$NAME` in it
        self.update_environment(**{**SETTINGS, **variables})

    def execute(self, command: str | Sequence[Any], *more: Any, **choices: Any) -> Any:
        """Run a command of git. Its first word stands for git."""
        words = [str(word) for word in command[1:]]
        check(words)
        return super().execute([*self.program(), *words], *more, shell=False, **choices)

    def program(self) -> list[str]:
        """The words before a command: without variables of our caller that redirect git.

        GitPython can only add variables. It would run git in the current folder where it cannot
        enter ours.
        """
        inherited = REPOSITORY_VARIABLES.intersection(os.environ).difference(self.environment())
        without = [word for name in sorted(inherited) for word in ("-u", name)]
        place = [] if self.working_dir is None else ["-C", str(self.working_dir)]
        return [*(["env", *without] if without else []), "git", *place, *OPTIONS]


def check(words: Sequence[str]) -> None:
    """Raises GitPython's errors for options and protocols that could run a program."""
    verb, rest = words[0], [word for word in words[1:] if word not in OWN_OPTIONS]
    if verb in UNSAFE_OPTIONS:
        options = [word for word in rest if word.startswith("-")]
        Git.check_unsafe_options(options, UNSAFE_OPTIONS[verb])
    if verb in TAKES_URL:
        for word in rest:
            Git.check_unsafe_protocols(word)


def run(
    words: Sequence[str],
    folder: Path | None,
    variables: Mapping[str, str],
    stdin: bytes | None,
    pass_fds: Sequence[int],
) -> tuple[int, bytes, str]:
    """Run git; returns its exit code and what it printed. Raises `GitError` for unsafe words."""
    choices = {"stdout_as_string": False, "strip_newline_in_stdout": False}
    choices |= {"with_extended_output": True, "with_exceptions": False}
    with errors_in_one_line(words[0]), as_file(stdin) as file:
        git = HardenedGit(folder, variables)
        code, out, err = git.execute(["git", *words], file, pass_fds=tuple(pass_fds), **choices)
    return code, out, err


@contextmanager
def object_reader(repository: Path) -> Iterator[Callable[[str], bytes]]:
    """While entered, one git process gives objects' contents by their ids.

    The function that it yields raises `UserError` for an object that git cannot read.
    """
    git = HardenedGit(repository, ISOLATED)

    def read(one: str) -> bytes:
        try:
            with errors_in_one_line("cat-file"):
                return git.get_object_data(one)[3]
        except (ValueError, OSError):
            raise unreadable(git.cat_file_all, repository, one) from None

    try:
        yield read
    finally:
        git.clear_cache()


def unreadable(process: Any, repository: Path, one: str) -> UserError:
    """Why the process that reads objects did not give one of them. Ends the process."""
    with suppress(OSError):  # it has ended
        process.stdin.close()
    if message := process.stderr.read().decode(errors="replace").strip():
        return GitError(f"git cat-file failed: {error_line(message)}")
    return UserError(f"{repository} does not have the object {one}")


@contextmanager
def errors_in_one_line(verb: str) -> Iterator[None]:
    """Turn GitPython's errors, which hold the whole command line, into ours."""
    try:
        yield
    except (UnsafeOptionError, UnsafeProtocolError) as error:
        reason = str(error).partition(", use ")[0]  # then: how to allow it
        raise GitError(f"git {verb} is refused: {reason}") from None
    except GitCommandNotFound:
        raise UserError(NOT_INSTALLED) from None


@contextmanager
def as_file(data: bytes | None) -> Iterator[BinaryIO | None]:
    """A file in memory, since GitPython passes files to git and not bytes."""
    if data is None:
        yield None
        return
    with open(os.memfd_create("stdin"), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file
