"""Removes runs by rule. A run that is in use or needed stays.

A removal renames the run into `.trash` beside it, and then deletes it there: a kill leaves the run
whole or gone. The next removal deletes what a killed one left in the trash.
"""

import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.files import sync_folder
from zoerefine.listing.labels import LABELS_LOCK, is_run_still
from zoerefine.listing.protection import Protection
from zoerefine.listing.run_row import RUNNING, RunRow, read_row
from zoerefine.locks import try_lock
from zoerefine.run_dir import RunDir

TRASH = ".trash"
TRASHED = re.compile(r".+\.[0-9a-f]{32}")  # <id>.<random>
DAY_S = 86400.0


@dataclass(frozen=True)
class Rule:
    """Which of the selected runs are removed: those that fulfil every given part.

    Attributes:
        keep_best: runs that are not among the N best of their name; None: not asked. Runs
            without the metric stay.
        older_than_days: runs that ended, or else started, earlier; None: not asked.
        metric, maximize: what best means.
    """

    keep_best: int | None
    older_than_days: float | None
    metric: str
    maximize: bool = False


def to_remove(rows: list[RunRow], rule: Rule) -> list[RunRow]:
    """The runs that the rule removes, without a look at what protects them."""
    found = list(rows)
    if rule.keep_best is not None:
        best = best_runs(rows, rule.keep_best, rule)
        found = [row for row in found if rule.metric in row.metrics and row.path not in best]
    if rule.older_than_days is not None:
        before = time.time() - rule.older_than_days * DAY_S
        found = [row for row in found if age_time(row) <= before]
    return found


def best_runs(rows: list[RunRow], count: int, rule: Rule) -> set[str]:
    """The paths of the best runs of each name."""
    names: dict[str, list[RunRow]] = {}
    for row in rows:
        if rule.metric in row.metrics:
            names.setdefault(row.name, []).append(row)
    best: set[str] = set()
    for group in names.values():
        ordered = sorted(group, key=lambda row: row.metrics[rule.metric], reverse=rule.maximize)
        best |= {row.path for row in ordered[:count]}
    return best


def age_time(row: RunRow) -> float:
    """When a run ended or else started; of one that never started, its folder's time."""
    if known := row.ended or row.started:
        return known
    try:
        return os.lstat(row.path).st_mtime
    except OSError:
        return time.time()


def remove_run(row: RunRow, protection: Protection) -> str:
    """Remove a run. Returns why it stays; empty where it is gone.

    The run's lock and its labels' lock are held, so that it neither starts nor gets a tag.
    """
    path = Path(row.path)
    if reason := protection.of_place(path):
        return reason
    try:
        reason = move_unless_needed(row, protection)
    except FileNotFoundError:  # another removal has moved it
        return "it is gone already"
    if not reason:
        unlink_latest(path)
        empty_trash(path.parent)
    return reason


def move_unless_needed(row: RunRow, protection: Protection) -> str:
    """Move a run to the trash. Returns why it stays; empty where it is there.

    Raises `FileNotFoundError` where it is gone.
    """
    path = Path(row.path)
    with try_locks(path) as locked:
        if not locked:
            return protection.of_run(read_row(row.path)) or "a process is using it"
        if not is_run_still(path):
            return "it is gone already"
        now = read_row(row.path)
        if now.state == RUNNING:  # the lock that says so is ours
            now = now._replace(state="killed")
        if (now.started, now.ended) != (row.started, row.ended):
            return "it has run since the list was made"
        protection.look_again()
        if reason := protection.of_run(now):
            return reason
        move_to_trash(path)
    return ""


@contextmanager
def try_locks(path: Path) -> Iterator[bool]:
    """Hold a run's lock and its labels' lock; yields whether both were free.

    The second one only with the first one: of two removals at once, one gets both.
    """
    with try_lock(RunDir(path).lock_file, make_folder=False) as run_fd:
        if run_fd is None:
            yield False
            return
        with try_lock(path / LABELS_LOCK, make_folder=False) as labels_fd:
            yield labels_fd is not None


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
            break
        except FileNotFoundError:  # another removal has deleted the empty trash
            if not path.exists():
                raise
    sync_folder(path.parent)


def is_foreign(trash: Path) -> bool:
    """Whether something else than a folder has the name of the trash."""
    try:
        return not stat.S_ISDIR(os.lstat(trash).st_mode)
    except FileNotFoundError:  # another removal has deleted it
        return False


def unlink_latest(path: Path) -> None:
    """Remove the link `latest` if it named the run that is gone."""
    latest = path.parent / "latest"
    with suppress(OSError):
        if os.path.basename(os.readlink(latest)) == path.name:
            latest.unlink()


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
        with suppress(OSError), os.scandir(place) as entries:
            inside = [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False)]
            for folder in (place, *inside):
                left += empty_trash(folder)
    return left
