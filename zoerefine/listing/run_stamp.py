"""What changes with the entries of a run's folders, so that an unchanged run is not read again."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress

MOST_FOLDERS = 16  # of a run, the outer ones first, whose changes are noticed


def stamp_of(path: str, folders: Iterable[str] = ()) -> tuple[str, float]:
    """What changes with the entries of folders, and the time of their last change in seconds.

    The change time counts, since programs that copy folders set the modification time.

    Args:
        path: the run.
        folders: paths inside it. A folder that replaces another one changes the one around it, so
            that times are enough for these.
    """
    try:
        first = os.lstat(path)
        times = [first.st_ctime_ns, *(os.lstat(f"{path}/{one}").st_ctime_ns for one in folders)]
    except OSError:
        return "", time.time()
    return f"{first.st_ino}.{sum(times)}", max(times) / 1e9


def inner_folders(path: str) -> list[str]:
    """The folders in a run by their paths there, the outer ones first, at most MOST_FOLDERS."""
    found = [""]
    for folder in found:  # which grows meanwhile
        with suppress(OSError), os.scandir(f"{path}/{folder}") as entries:
            inside = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
            found += [f"{folder}/{name}".lstrip("/") for name in sorted(inside)]
        if len(found) > MOST_FOLDERS:
            break
    return found[1 : MOST_FOLDERS + 1]
