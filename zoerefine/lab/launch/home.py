"""The home folder of launches: mirrors, workspaces and environments are below it."""

import os
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import create_ignored_folder

OTHER_HOME = "give another folder with --home or ZOEREFINE_HOME"


def home_folder(given: Path | None = None) -> Path:
    """The folder of mirrors and workspaces: --home, $ZOEREFINE_HOME, or one in the user's cache.

    Raises `UserError` where the user has no home folder, or an unknown user's is named.
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    if given is not None:
        source, folder = "--home", given
    elif home := os.environ.get("ZOEREFINE_HOME"):
        source, folder = "ZOEREFINE_HOME", Path(home)
    elif cache:
        return Path(cache).resolve() / "zoerefine"
    else:
        source, folder = "the home folder", Path("~/.cache/zoerefine")
    try:
        return folder.expanduser().resolve()
    except (RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or "there is no such user"
        raise UserError(f"{source} {folder}: {reason}; {OTHER_HOME}") from None


def create_home(home: Path) -> None:
    """Create the home where it does not exist. It may be inside a repository, so git ignores it.

    Raises `UserError` where mirrors and workspaces cannot be kept there.
    """
    if os.pathsep in str(home):
        raise UserError(
            f"{home} contains {os.pathsep!r}, so Python cannot import from workspaces there; "
            f"{OTHER_HOME}"
        )
    try:
        create_ignored_folder(home)
    except UserError as error:
        raise UserError(f"{error}; {OTHER_HOME}") from None
    if not os.access(home, os.W_OK | os.X_OK):
        raise UserError(f"{home} cannot be written to; {OTHER_HOME}")
