"""The folder `.trash` beside runs: a run is renamed into it, and then deleted there.

A kill leaves the run whole or gone. The next removal deletes what a killed one left in the trash.
"""

import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from zoerefine.errors import UserError

TRASH = ".trash"
TRASHED = re.compile(r".+\.[0-9a-f]{32}")  # <id>.<random>


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
            os.rename(path, trash / f"{path.name}.{uuid.uuid4().hex}")
            return
        except FileNotFoundError:  # another removal has deleted the empty trash
            if not path.exists():
                raise


def is_foreign(trash: Path) -> bool:
    """Whether something else than a folder has the name of the trash."""
    try:
        return not stat.S_ISDIR(os.lstat(trash).st_mode)
    except FileNotFoundError:  # another removal has deleted it
        return False


def empty_trash(folder: Path) -> list[Path]:
    """Delete what is in the trash of a folder. Returns what could not be deleted."""
    trash = folder / TRASH
    if is_foreign(trash):
        return []
    left = []
    try:
        with os.scandir(trash) as entries:
            names = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    for name in filter(TRASHED.fullmatch, names):
        shutil.rmtree(trash / name, ignore_errors=True)
        if os.path.lexists(trash / name):
            left.append(trash / name)
    with suppress(OSError):  # something else is in it
        trash.rmdir()
    return left


def empty_all_trash(places: Iterable[Path]) -> list[Path]:
    """Delete what killed removals left in some folders and those of a name in them."""
    left = []
    for place in places:
        inside: list[Path] = []
        with suppress(OSError), os.scandir(place) as entries:
            inside = [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False)]
        for folder in (place, *inside):
            with suppress(OSError):  # it may not be read
                left += empty_trash(folder)
    return left
