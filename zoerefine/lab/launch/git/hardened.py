"""GitPython's checks for words of a command that could run a program. No other module imports it.

Importing GitPython takes about 40 ms, a fifth of a second launch, so `commands.py` imports this
module only for the commands that are checked. Nothing else of GitPython is used: `Git` can only add
variables to those of our caller, `Repo` follows them, expands `$NAME` in paths and reads the files
that a repository's configuration includes, and `Remote.fetch` logs what the server prints.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zoerefine.lab.launch.git.settings import NO_TEMPLATE, UPLOAD_PACK, GitError

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
    from git import Git, Remote, Repo, UnsafeOptionError, UnsafeProtocolError

UNSAFE_OPTIONS = {
    "fetch": Remote.unsafe_git_fetch_options,
    "init": Repo.unsafe_git_init_options,
}
TAKES_URL = {"fetch", "remote"}
# Options that GitPython holds to be unsafe, with the values that make ours safe.
OWN_OPTIONS = {NO_TEMPLATE, f"--upload-pack={UPLOAD_PACK}"}


def check(words: Sequence[str]) -> None:
    """Raises `GitError` for options and protocols that could run a program."""
    verb, rest = words[0], [word for word in words[1:] if word not in OWN_OPTIONS]
    try:
        if verb in UNSAFE_OPTIONS:
            options = [word for word in rest if word.startswith("-")]
            Git.check_unsafe_options(options, UNSAFE_OPTIONS[verb])
        if verb in TAKES_URL:
            for word in rest:
                Git.check_unsafe_protocols(word)
    except (UnsafeOptionError, UnsafeProtocolError) as error:
        reason = str(error).partition(", use ")[0]  # then: how to allow it
        raise GitError(f"git {verb} is refused: {reason}") from None
