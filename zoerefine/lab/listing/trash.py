"""The folder `.trash` beside runs: removed runs, until they are restored or deleted.

A rename moves a run there and back, so that a kill leaves it whole in one of the two places. What
is deleted gets another name first, so that a run that is half deleted is never restored.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import sync_folder

TRASH = ".trash"
KEPT_DAYS = 30
TRASHED = re.compile(r"(.+)\.(\d{19})(\.deleting)?")  # <id>.<time of the removal in ns>


class Removed(NamedTuple):
    """A run in the trash.

    Attributes:
        run: where it was.
        removed_ns: when it was removed, in nanoseconds since the epoch.
        is_whole: whether nobody has begun to delete it.
    """

    path: Path
    run: Path
    removed_ns: int
    is_whole: bool


def move_to_trash(path: Path) -> None:
    """Rename a run into the trash beside it.

    Raises `UserError` where that is not our folder, and `OSError` where nothing can be renamed.
    """
    trash = path.parent / TRASH
    while True:
        with suppress(FileExistsError):
            trash.mkdir()
        if is_foreign(trash):
            raise UserError(f"{trash} is not a folder of zoerefine: move it away")
        try:
            os.rename(path, trash / f"{path.name}.{time.time_ns()}")
            return
        except FileNotFoundError:  # another process has removed the empty trash
            if not path.exists():
                raise


def is_foreign(trash: Path) -> bool:
    """Whether something else than a folder has the name of the trash."""
    try:
        return not stat.S_ISDIR(os.lstat(trash).st_mode)
    except FileNotFoundError:  # another process has removed it
        return False


def removed_runs(places: Iterable[Path]) -> list[Removed]:
    """What is in the trash of some folders and of those of a name in them, the newest first."""
    found: list[Removed] = []
    for place in places:
        with suppress(OSError):
            inside = [one for one in place.iterdir() if one.is_dir() and not one.is_symlink()]
            for folder in (place, *inside):
                with suppress(OSError):  # it may not be read
                    found += _in_trash(folder)
    return sorted(found, key=lambda one: one.removed_ns, reverse=True)


def _in_trash(folder: Path) -> Iterator[Removed]:
    trash = folder / TRASH
    if not trash.exists() or is_foreign(trash):
        return
    for path in trash.iterdir():
        named = TRASHED.fullmatch(path.name)
        if named and not path.is_symlink():
            yield Removed(path, folder / named[1], int(named[2]), not named[3])


def restore(name: str, places: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Bring removed runs back, of each the one that was removed last.

    Args:
        name: the end of their paths, such as ID, NAME/ID or a glob NAME/*.

    Yields:
        Where a run is again; or where it belongs, and why it stays in the trash.

    Raises:
        UserError: no removed run has this name.
    """
    whole = {one.run: one for one in reversed(removed_runs(places)) if one.is_whole}
    named = [one for one in whole.values()
             if one.run.match(name) or f"/{one.run}".endswith(f"/{name}")]  # fmt: skip
    if not named:
        some = ", ".join(["/".join(run.parts[-2:]) for run in list(whole)[-5:]])
        raise UserError(f"no removed run is named {name!r}; removed last: {some or 'none'}")
    for one in named:
        reason = f"{one.run} is there again" if os.path.lexists(one.run) else ""
        if not reason:
            try:
                os.rename(one.path, one.run)
            except OSError as error:
                reason = f"it cannot be moved: {error.strerror}"
        yield one.run, reason


def delete(some: Iterable[Removed]) -> list[Path]:
    """Delete removed runs. Returns what could not be deleted."""
    left = []
    for one in some:
        trash = one.path.parent
        half = trash / f"{one.run.name}.{one.removed_ns}.deleting"
        with suppress(OSError):  # it was restored, or it may not be renamed
            os.rename(one.path, half)
            sync_folder(trash)
            shutil.rmtree(half, ignore_errors=True)
        left += [path for path in {one.path, half} if os.path.lexists(path)]
        with suppress(OSError):  # something else is in it
            trash.rmdir()
    return left


def delete_old(places: Iterable[Path]) -> list[Path]:
    """Delete what was removed more than KEPT_DAYS ago, or is half deleted; see `delete`."""
    before_ns = time.time_ns() - KEPT_DAYS * 86400 * 10**9
    return delete(
        one for one in removed_runs(places) if one.removed_ns < before_ns or not one.is_whole
    )
