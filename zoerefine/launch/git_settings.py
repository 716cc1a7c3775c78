"""What every git command gets: options, environment variables, and the form of its errors."""

import os

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
NO_TEMPLATE = "--template="  # a new repository without hooks
NOT_INSTALLED = "git is not installed: install it (e.g. apt install git)"


class GitError(UserError):
    """Git failed; the sentence holds git's own first error line."""


def error_line(text: str) -> str:
    """The first error line of git's messages, or else the last line."""
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    named = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return hide_secrets((named or lines[-1:])[0])
