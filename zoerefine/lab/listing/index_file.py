"""The text of `.runs-index`: a line with digests, a line with lists of names, and a line a run.

The line of a run has columns with tabs between them. Only those that are needed are parsed.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from zoerefine.base.files.atomic import HALF_WRITTEN, remove_half_written, write_text
from zoerefine.lab.listing.row import RunRow
from zoerefine.lab.runs.cache import reading_code


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


class NameTable:
    """The different lists of names, each with a number, which is stored as text."""

    def __init__(self, lists: Iterable[Iterable[str]] = ()) -> None:
        self.places: dict[str, dict[str, int]] = {}  # by number: the place of each name
        self._numbers: dict[tuple[str, ...], str] = {}
        for names in lists:
            self.number(names)

    def number(self, names: Iterable[str]) -> str:
        """The number of a list of names; a new one for a list that is new."""
        names = tuple(names)
        if names not in self._numbers:
            number = self._numbers[names] = str(len(self._numbers))
            self.places[number] = {name: place for place, name in enumerate(names)}
        return self._numbers[names]

    @property
    def lists(self) -> list[list[str]]:
        """What a new table is made from."""
        return [list(places) for places in self.places.values()]


class Entry(NamedTuple):
    """A stored run.

    Attributes:
        stamp: that of its folders when it was read.
        folders: the number of the names of its inner folders in the table.
        row: the fields of its row without path, metrics and `is_complete`, as JSON.
        names, values: the number of its metrics' names in the table, and their values.
        keys, settings: the number of its config keys in the table, and their values as JSON; empty
            until a filter has asked for them.
    """

    stamp: str
    folders: str
    row: str
    names: str
    values: str
    keys: str = ""
    settings: str = ""


def entry_of(row: RunRow, stamp: str, folders: list[str], table: NameTable) -> Entry:
    """What is stored of a row that could be read completely."""
    values = " ".join(map(repr, row.metrics.values()))
    fields = json.dumps(row[2:-1])
    return Entry(stamp, table.number(folders), fields, table.number(row.metrics), values)


def with_settings(entry: Entry, settings: dict[str, Any], table: NameTable) -> Entry:
    """The same with config keys and their values."""
    values = json.dumps(list(settings.values()))
    return entry._replace(keys=table.number(settings), settings=values)


def settings_of(entry: Entry, table: NameTable) -> dict[str, Any] | None:
    """The config keys with their values; None where they are not stored."""
    if not entry.keys:
        return None
    return dict(zip(table.places[entry.keys], json.loads(entry.settings), strict=True))


def row_of(path: str, entry: Entry, table: NameTable) -> RunRow:
    """The row that was stored."""
    metrics = StoredMetrics(table.places[entry.names], entry.values)
    return RunRow(path, metrics, *json.loads(entry.row))


def load_index(file: Path) -> tuple[dict[str, Entry], NameTable]:
    """The stored runs; none where the file is missing, damaged or another version's."""
    try:
        text = file.read_bytes()
        head, _, body = text.partition(b"\n")
        if head != digests(body):
            return {}, NameTable()
        names, *lines = body.decode().split("\n")
        columns = (line.split("\t") for line in lines)
        return {path_from(path): Entry(*entry) for path, *entry in columns}, NameTable(
            json.loads(names)
        )
    except (OSError, ValueError, TypeError):
        return {}, NameTable()


def save_index(file: Path, entries: dict[str, Entry], table: NameTable) -> None:
    """Write the index. Raises `OSError` where the folder cannot be written."""
    remove_half_written(file.parent.glob(HALF_WRITTEN), re.escape(file.name))
    lines = ["\t".join([path_text(path), *entry]) for path, entry in entries.items()]
    body = "\n".join([json.dumps(table.lists), *lines])
    write_text(file, f"{digests(body.encode()).decode()}\n{body}")


def digests(body: bytes) -> bytes:
    """The first line: digests of the reading code, and of the other lines."""
    return f"{reading_code('lab/listing/*.py')} {zlib.crc32(body):08x}".encode()


def path_text(path: str) -> str:
    """A path as a column: as it is where it can be, else as JSON."""
    return path if path.isprintable() else json.dumps(path)


def path_from(text: str) -> str:
    """The path that `path_text` wrote."""
    return text if text.startswith("/") else str(json.loads(text))
