"""Removes runs by rule, into a trash. A run that is in use or needed stays.

A removed run is in the folder `.trash` beside the others until it is restored or deleted. A rename
moves it there and back, so that a kill leaves it whole in one of the two places. What is deleted
gets another name first, so that a run that is half deleted is never restored.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zoerefine.base.errors import UserError, damage
from zoerefine.base.files.atomic import bytes_on_disk, sync
from zoerefine.base.files.file_lock import try_lock
from zoerefine.base.run_dir import LATEST, RunDir
from zoerefine.lab.listing.labels import LABELS_LOCK, is_run_still
from zoerefine.lab.listing.protection import Protection
from zoerefine.lab.listing.table import RUNNING, RunRow, read_row

DAY_S = 86400.0
GONE = "it is gone already"


class Stays(Exception):
    """A run is not removed. The text says why."""


class Outcome(NamedTuple):
    """What became of a run.

    Attributes:
        row: the run as it was read last.
        reason: why it stays; empty where it is removed.
        is_fault: whether it stays because something failed.
    """

    row: RunRow
    reason: str
    is_fault: bool = False


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
    """The paths of the best runs of each name; finished runs come first."""
    names: dict[str, list[RunRow]] = {}
    for row in rows:
        if rule.metric in row.metrics:
            names.setdefault(row.name, []).append(row)
    best: set[str] = set()
    for group in names.values():
        ordered = sorted(group, key=lambda row: row.metrics[rule.metric], reverse=rule.maximize)
        ordered.sort(key=lambda row: row.state != "finished")  # a crash may look good
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


def preview(row: RunRow, protection: Protection) -> Outcome:
    """What a removal of a run would come to, with its size of now."""

    def look() -> RunRow:
        require_free(protection.now(row))
        return row._replace(bytes=bytes_on_disk(row.path))

    return outcome_of(row, look)


def remove_run(row: RunRow, protection: Protection) -> Outcome:
    """Move a run to the trash, unless it is in use or needed."""

    def move() -> RunRow:
        path = Path(row.path)
        require_free(protection.of_place(path))
        with try_locks(path) as are_free:
            if not are_free:
                raise Stays(protection.of_run(read_row(row.path)) or "a process is using it")
            if not is_run_still(path):
                raise Stays(GONE)
            now = read_row(row.path)
            if now.state == RUNNING:  # the lock that says so is ours
                now = now._replace(state="killed")
            if (now.started, now.ended) != (row.started, row.ended):
                raise Stays("it has run since the list was made")
            require_free(protection.of_run(now))
            move_to_trash(path)
        unlink_latest(path)
        return now

    return outcome_of(row, move)


def require_free(reason: str) -> None:
    """Raises `Stays` where there is a reason."""
    if reason:
        raise Stays(reason)


def outcome_of(row: RunRow, step: Callable[[], RunRow]) -> Outcome:
    """What a step with a run comes to."""
    try:
        return Outcome(step(), "")
    except Stays as stays:
        return Outcome(row, str(stays))
    except FileNotFoundError:  # another removal has moved it
        return Outcome(row, GONE)
    except (UserError, OSError) as error:
        return Outcome(row, damage(error), is_fault=True)


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


def unlink_latest(path: Path) -> None:
    """Remove the link `latest` if it named the run that is gone."""
    latest = path.parent / LATEST
    with suppress(OSError):
        if os.path.basename(os.readlink(latest)) == path.name:
            latest.unlink()


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

    Raises `UserError` where no removed run has this name.
    """
    if not Path(name).parts:
        raise UserError(f"--restore {name!r} names no run: give ID, NAME/ID or a glob")
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
            sync(trash)
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
