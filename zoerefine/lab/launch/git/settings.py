"""What every git command gets: options, environment variables, and the form of its errors."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

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
GITLINK = "160000"  # the mode of a submodule
NO_TEMPLATE = "--template="  # a new repository without hooks
NOT_INSTALLED = "git is not installed: install it (e.g. apt install git)"


class GitError(UserError):
    """Git failed; the sentence holds git's own first error line."""


def error_line(text: str) -> str:
    """The first error line of git's messages, or else the last line."""
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    named = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return hide_secrets((named or lines[-1:])[0])


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
    settings = [(key, harmless_value(key, lfs)) for key in own_keys(folder) if is_program(key)]
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings)), **NO_TRANSPORT}
    for number, (key, value) in enumerate(settings, start=first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def is_program(key: str) -> bool:
    """Whether a key of a configuration names a program, or says that it must succeed."""
    return bool(PROGRAMS.fullmatch(key))


def harmless_value(key: str, lfs: Mapping[str, str]) -> str:
    """A value that runs nothing, or Git LFS."""
    return lfs.get(key, "false" if key.endswith(".required") else "")


def own_keys(folder: Path) -> list[str]:
    """The keys of a repository's own configuration, with the files that it includes."""
    command = ["git", "config", "--list", "--show-scope", "--name-only", "-z"]
    done = subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True)
    words = done.stdout.decode(errors="surrogateescape").split("\0")
    pairs = zip(words[::2], words[1::2], strict=False)
    return sorted({key for scope, key in pairs if scope in ("local", "worktree")})
