"""The folder of mirrors, workspaces and environments."""

import os
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.mirror import OTHER_HOME


def home_folder(given: Path | None) -> Path:
    """The folder that --home names, else the default. Raises `UserError` for an unknown user's."""
    return expanded(given, "--home") if given else default_home()


def default_home() -> Path:
    """The folder of mirrors and workspaces: $ZOEREFINE_HOME, or zoerefine in the user's cache.

    Raises `UserError` where the user has no home folder, or the variable names an unknown user's.
    """
    if home := os.environ.get("ZOEREFINE_HOME"):
        return expanded(Path(home), "ZOEREFINE_HOME")
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache).resolve() / "zoerefine"
    return expanded(Path("~/.cache/zoerefine"), "the home folder")


def expanded(folder: Path, source: str) -> Path:
    """A folder with its `~` replaced. Raises `UserError` where there is no such user."""
    try:
        return folder.expanduser().resolve()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or "there is no such user"
        raise UserError(f"{source} {folder}: {reason}; {OTHER_HOME}") from None
