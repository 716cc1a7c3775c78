"""Runs git: without a shell, without prompts, and isolated from user input.

Words that may be a URL, or options that name programs, are checked by GitPython first. A second
launch of a commit has none of these. Importing GitPython takes about 40 ms, a fifth of that launch,
so it is imported only then.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.secrets import hide_secrets

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
GITLINK, LINK = "160000", "120000"  # the modes of a submodule and of a link
NO_TEMPLATE = "--template="  # a new repository without hooks
CURE = "git config --global --add safe.directory"
NOT_INSTALLED = "git is not installed: install it (e.g. apt install git)"


class GitError(UserError):
    """Git failed; the sentence holds git's own first error line, and its cure where it has one."""


def error_line(text: str) -> str:
    """The first error line of git's messages, or else the last line; with git's cure for a
    repository of another user.
    """
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    named = [line for line in lines if line.startswith(("fatal:", "error:"))]
    cures = [f"; if you trust it: {line.strip()}" for line in lines if CURE in line]
    return hide_secrets("".join([*(named or lines[-1:])[:1], *cures[:1]]))


# What keeps git from running the programs that a user's repository names in its configuration.
#
# A repository may come from anywhere, and its .git/config can name programs: filters, a command
# that a promisor remote runs when an object is missing, and others. The user's own configuration
# and the system's are trusted.

# No command in a user's repository needs a transport. Without one git fetches no missing object.
NO_TRANSPORT = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
UPLOAD_PACK = "env GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1 git-upload-pack"
PROGRAMS = re.compile(
    r"filter\..*\.(clean|smudge|process|required)|diff\.external|diff\..*\.(command|textconv)"
    r"|merge\..*\.driver|credential(\..*)?\.helper|gpg(\..*)?\.program"
    r"|core\.(askpass|editor|pager|sshcommand|gitproxy|alternaterefscommand)",
    re.DOTALL,
)
REPOSITORY_VARIABLES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE"),
    *("GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE", "GIT_CEILING_DIRECTORIES"),
}
LFS = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.process": "git-lfs filter-process",
    "filter.lfs.required": "true",
}


def clean_environment() -> dict[str, str]:
    """Our environment variables without those that point git at another repository."""
    return {key: value for key, value in os.environ.items() if key not in REPOSITORY_VARIABLES}


@lru_cache(maxsize=256)
def foreign_settings(folder: Path) -> Mapping[str, str]:
    """Variables for git in a user's repository, so that its own configuration runs nothing."""
    lfs = LFS if shutil.which("git-lfs") else {}
    # A value that runs nothing, or Git LFS; `required` says that a program must succeed.
    settings = [
        (key, lfs.get(key, "false" if key.endswith(".required") else ""))
        for key in own_keys(folder)
        if PROGRAMS.fullmatch(key)
    ]
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings)), **NO_TRANSPORT}
    for number, (key, value) in enumerate(settings, start=first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def own_keys(folder: Path) -> list[str]:
    """The keys of a repository's own configuration, with the files that it includes."""
    command = ["git", "config", "--list", "--show-scope", "--name-only", "-z"]
    done = subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True)
    words = done.stdout.decode(errors="surrogateescape").split("\0")
    pairs = zip(words[::2], words[1::2], strict=False)
    return sorted({key for scope, key in pairs if scope in ("local", "worktree")})


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


def write_alternates(objects: Path, borrowed: Path) -> None:
    """Let a repository's folder of objects borrow those of another. Paths may hold any byte."""
    path = os.fsencode(borrowed)
    if b"\n" in path or path.startswith(b'"'):  # git-lfs does not read quoted paths
        escapes = {b"\\": b"\\\\", b'"': b'\\"', b"\n": b"\\n"}
        path = b'"%s"' % b"".join(escapes.get(bytes([one]), bytes([one])) for one in path)
    (objects / "info").mkdir(parents=True, exist_ok=True)
    (objects / "info" / "alternates").write_bytes(path + b"\n")
