"""`.runs-index`: the rows of a folder's runs, so that only changed runs are read again.

It is derived from the runs and may be deleted at any time. A run is read again when its folder or
a folder in it has changed: a file was created, replaced or removed there, as every command of ours
does it; and when its own metrics were written to again. A running run, and one that could not be
read completely, is always read.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import HALF_WRITTEN, remove_half_written
from zoerefine.base.progress import track
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.listing.table import RUNNING, RunRow, current_row, read_row
from zoerefine.lab.runs.find import RUN_FILES, matches, run_paths
from zoerefine.lab.runs.stored import MANY, StoredRuns, read_many, reading_code

MOST_FOLDERS = 16  # of a run, the outer ones first, whose changes are noticed
IN_PLACE = ("metrics.jsonl", "results.json")  # scripts may write into them again


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
    for name in IN_PLACE:
        with suppress(OSError):
            times.append(os.lstat(f"{path}/{name}").st_ctime_ns)
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


INDEX_FILE = ".runs-index"
FRESH_S = 2.0  # a change this young may have the same time as the next one


class Reading(NamedTuple):
    """A run as it was read.

    Attributes:
        folders: its inner folders whose changes are noticed.
        stamp: that of the run and of these folders, from before the run was read.
        is_settled: whether their next change has another time than the last one.
    """

    row: RunRow
    folders: list[str]
    stamp: str
    is_settled: bool


class Entry(NamedTuple):
    """A stored run. Lists of names are stored once for all runs, each with a number.

    Attributes:
        stamp: that of its folders when it was read.
        folders: the number of the list of its inner folders.
        row: the fields of its row without path, metrics and `is_complete`.
        names, values: the number of the list of its metrics, and their values as a text.
    """

    stamp: str
    folders: int
    row: list[Any]
    names: int
    values: str


class StoredMetrics(Mapping[str, float]):
    """The metrics of a run by name. A value is parsed when it is asked for."""

    def __init__(self, places: Mapping[str, int], values: str) -> None:
        """Values with spaces between them, and the place of each name among them."""
        self._places, self._values = places, values

    def __getitem__(self, name: str) -> float:
        place = self._places[name]
        return float(self._values.split(" ", place + 1)[place])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


# Beside the runs, whose paths begin with a slash, the file has the lists of names, and the settings
# of each run of which a filter has asked for them: the number of the list of its keys, and values.
NAME_LISTS, SETTINGS = "names", "settings of "


class RunIndex(StoredRuns):
    """The rows and settings of the runs in some folders."""

    def __init__(self, folder: Path | None, patterns: Sequence[str] = ()) -> None:
        """Open the index of a folder; None: without an index.

        Args:
            patterns: further metric patterns.
        """
        super().__init__(
            folder / INDEX_FILE if folder else None, {"code": reading_code("lab/listing/*.py")}
        )
        self.patterns = tuple(patterns)
        lists: list[list[str]] = json.loads(self.old.get(NAME_LISTS, "[]"))
        self.numbers = {tuple(names): number for number, names in enumerate(lists)}
        self.places = [place_of_each(names) for names in lists]
        runs = {path: text for path, text in self.old.items() if path.startswith("/")}
        entries = json.loads(f"[{','.join(runs.values())}]")  # all at once, which is fast
        self.known = {path: Entry(*one) for path, one in zip(runs, entries, strict=True)}
        self.stamps: dict[str, str] = {}

    def is_unchanged(self, path: str) -> bool:
        """Whether a run is stored and its folders have not changed since."""
        known = self.known.get(path)
        if known is None:
            return False
        if path not in self.stamps:  # looked for once
            self.stamps[path] = stamp_of(path, self.places[known.folders])[0]
        return known.stamp == self.stamps[path]

    def rows(self, paths: list[str]) -> list[RunRow]:
        """The rows of runs: stored ones where nothing has changed."""
        found = {path: self._stored(path) for path in paths}
        to_read = [path for path, row in found.items() if row is None]
        readings: Iterable[Reading] = read_many(partial(read_stamped, self.patterns), to_read)
        if len(to_read) >= MANY:
            readings = track(readings, len(to_read), "reading runs", "run")
        for path, reading in zip(to_read, readings, strict=True):
            found[path] = row = reading.row
            if row.state != RUNNING and row.is_complete and reading.is_settled:
                values = " ".join(map(repr, row.metrics.values()))
                folders, names = self._number(reading.folders), self._number(row.metrics)
                entry = Entry(reading.stamp, folders, [*row[2:-1]], names, values)
                self.new[path] = json.dumps(entry)
        return [row for row in found.values() if row]

    def settings(self, path: str) -> dict[str, Any]:
        """The config keys of a run with their values. Raises where they are damaged."""
        if stored := self.new.get(SETTINGS + path):
            keys, values = json.loads(stored)
            return dict(zip(self.places[keys], values, strict=True))
        settings = read_settings(Path(path))
        if path in self.new:
            self.new[SETTINGS + path] = json.dumps([self._number(settings), [*settings.values()]])
        return settings

    def save(self) -> None:
        """Write the index if a run has changed. A folder that cannot be written stays without."""
        if self.new:
            self.new[NAME_LISTS] = json.dumps([*self.numbers])
        if self.file is None or self.new == self.old:
            return
        with suppress(OSError):
            remove_half_written(self.file.parent.glob(HALF_WRITTEN), re.escape(self.file.name))
            super().save()

    def _stored(self, path: str) -> RunRow | None:
        """The stored row, with its state of now; None where the run must be read."""
        if not self.is_unchanged(path):
            return None
        entry = self.known[path]
        metrics = StoredMetrics(self.places[entry.names], entry.values)
        row = current_row(RunRow(path, metrics, *entry.row))
        if row.state == RUNNING:
            return None
        self.new[path] = self.old[path]
        if (settings := SETTINGS + path) in self.old:
            self.new[settings] = self.old[settings]
        return row

    def _number(self, names: Iterable[str]) -> int:
        """The number of a list of names; a new one for a list that is new."""
        number = self.numbers.setdefault(tuple(names), len(self.places))
        if number == len(self.places):
            self.places.append(place_of_each(names))
        return number


def place_of_each(names: Iterable[str]) -> dict[str, int]:
    """The place of each name in a list."""
    return {name: place for place, name in enumerate(names)}


def read_stamped(patterns: tuple[str, ...], path: str) -> Reading:
    """Read a run, with the stamp of before."""
    folders = inner_folders(path)
    stamp, changed_s = stamp_of(path, folders)
    is_settled = changed_s + FRESH_S < time.time()
    return Reading(read_row(path, patterns), folders, stamp, is_settled)


def read_settings(folder: Path) -> dict[str, Any]:
    """What `--where` compares: the config keys of a run, as `zoerefine analyze` reads them."""
    from zoerefine.base.config_roles import compared_settings
    from zoerefine.lab.runs.read import is_foreign, read_run
    from zoerefine.lab.runs.record import read_own_config

    run = RunDir(folder)
    if is_foreign(run, run.recorded()):
        found = read_run(folder)
        return {"seed": found.seed, **found.named_settings}
    return compared_settings(read_own_config(run))


def find_rows(
    patterns: list[str], patterns_of_output: Sequence[str] = ()
) -> tuple[list[RunRow], RunIndex]:
    """The runs in folders, studies and globs, each once, and the index that they came from.

    Args:
        patterns_of_output: further metric patterns; with them the index is not used.

    Raises `UserError` where a path does not exist, or there is no run.
    """
    places = [path for pattern in patterns for path in matches(pattern)]
    for place in places:
        if not place.exists():
            raise UserError(f"{place} does not exist: name a folder of runs")
    folder = None if patterns_of_output else index_folder(places)
    index = RunIndex(folder, patterns_of_output)
    found = [run for place in places for run in run_paths(str(place), index.is_unchanged)]
    if not found:
        raise UserError(f"no run in {', '.join(patterns)}: every run has a provenance.json")
    rows = index.rows(list(dict.fromkeys(found)))
    index.save()
    return rows, index


def index_folder(places: list[Path]) -> Path | None:
    """Where the index of some places is kept: in the only one, unless that is a run."""
    if len(places) != 1 or not places[0].is_dir():
        return None
    return None if any(os.path.lexists(places[0] / name) for name in RUN_FILES) else places[0]
