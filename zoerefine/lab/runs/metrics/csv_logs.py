"""CSV files as logs."""

import codecs
import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

from zoerefine.base.errors import first_few
from zoerefine.lab.runs.metrics.series import (
    EPOCH,
    MAX_BYTES,
    NAMED,
    NO_VALUE,
    NUMBERED,
    ODD_NUMBER,
    PHASES,
    STEP_NAMES,
    Kind,
    MetricLog,
    parse_number,
    part_of,
)

CSV_SUFFIXES = {".csv", ".tsv"}
DELIMITERS = ",;\t"
WITH_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
HASH = re.compile(r"[\da-f]{7,}", re.IGNORECASE)

# By column, the cells that may be numbers and cannot be read, each with its line.
OddCells = dict[str, list[tuple[str, int]]]


@dataclass
class CsvLog(MetricLog):
    """A CSV file. It is read again whenever it has changed, since many scripts write it anew.

    Attributes:
        since, skipped: as of a `LineLog`.
        has_steps: whether a column counts steps; otherwise a row's number, from 1, is its step.
    """

    since: int = 0
    skipped: int = 0
    has_steps: bool = False
    stamp: tuple[int, ...] = ()

    @property
    def kind(self) -> Kind:
        return Kind.TABLE if self.has_steps else Kind.LOOSE_TABLE

    def update(self, ended: bool) -> None:
        """Read the file if it has changed."""
        status = self.path.stat()
        stamp = (status.st_size, status.st_mtime_ns, status.st_ino, ended)
        if stamp == self.stamp:
            return
        self.stamp = stamp
        self.forget()
        self.has_steps = False
        if status.st_size > MAX_BYTES:
            self.faults["size"] = f"larger than {MAX_BYTES >> 20} MiB, so it is not read"
            return
        with open(self.path, "rb") as file:
            head = file.read(max(self.since, self.skipped, 2))
            is_wide = head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # PowerShell's
        text = self.path.read_text("utf-16" if is_wide else "utf-8-sig", "replace")
        complete = text if ended else text[: text.rfind("\n") + 1]
        try:
            self._read(complete, *(head[:n].count(b"\n") for n in (self.since, self.skipped)))
        except csv.Error as error:
            self.faults["row"] = f"not a valid CSV file: {error}"

    def _read(self, text: str, earlier_lines: int, skipped_lines: int) -> None:
        lines = list(io.StringIO(text))
        above = lines_above_header(lines)
        rows = csv.DictReader(lines[above:], delimiter=self._delimiter(*lines[above : above + 2]))
        columns = self._columns(rows.fieldnames or [])
        if columns is None:
            return
        odd: OddCells = {}
        read: dict[str, set[str]] = {}  # by column, the metrics that it has
        for number, row in enumerate(rows, 1):
            line = above + rows.line_num
            if line <= skipped_lines:
                continue
            if earlier_lines and line > earlier_lines:
                earlier_lines = 0
                self.begin_attempt()
            if read and (header := columns.header_in(row, lines[line - 2])):
                rows.fieldnames = header
                if (columns := self._columns(header)) is None:
                    break
                columns = self._without_steps_lost(columns, line)
                continue
            if any(row.pop(None, ())):  # the values without a column
                self.faults["row"] = (
                    f"line {line} has more values than columns: write decimal points, not commas"
                )
                continue
            step = columns.step(row, number)
            if step is not None:
                self._add_row(columns, row, step, line, odd, read)
            elif text := columns.odd_step(row):
                counter = columns.counters[0]
                odd, read = {counter: [(text, line)]}, {counter: {*self.points}}
                break
        self._leave_out_odd(odd, read)

    def _columns(self, header: Sequence[str]) -> "Columns | None":
        """What the columns are; None where no value has a certain step, or there is no header."""
        columns = {name: name.strip() for name in header}
        if any(parse_number(name) is not None for name in columns.values()):
            return None  # the first row is no header
        lower = {name.lower(): column for column, name in columns.items()}
        counters = [lower[name] for name in STEP_NAMES if name in lower]
        self.has_steps = self.has_steps or bool(counters)
        names = [columns[column] for column in header]
        called = [name.lower() if name.lower() in STEP_NAMES else name for name in names]
        twice = {name for name in called if name and called.count(name) > 1}
        if twice:
            self.faults["columns"] = f"two columns are called {min(twice)}"
        if counters and columns[counters[0]].lower() in twice:
            return None
        return Columns(
            counters=[column for column in counters if columns[column].lower() not in twice],
            epoch=lower.get(EPOCH, ""),
            phases=[lower[name] for name in PHASES if name in lower],
            metrics={
                column: name
                for column, name in columns.items()
                if name and name.lower() not in STEP_NAMES and name not in twice
            },
        )

    def _without_steps_lost(self, columns: "Columns", line: int) -> "Columns":
        """The columns below a later header; a metric with steps has none of those without."""
        if columns.counters or not self.has_steps:
            return columns
        lost = [name for name in columns.metrics.values() if name in self.points]
        if lost:
            self.faults["header"] = (
                f"the header in line {line} has no column of steps, so {first_few(lost, NAMED)} "
                f"below it {'is' if len(lost) == 1 else 'are'} not read"
            )
        kept = {column: name for column, name in columns.metrics.items() if name not in lost}
        return replace(columns, metrics=kept)

    def _add_row(
        self,
        columns: "Columns",
        row: Mapping[str, str],
        step: float,
        line: int,
        odd: OddCells,
        read: dict[str, set[str]],
    ) -> None:
        phase = columns.phase(row)
        prefix = f"{phase}." if phase else ""
        has_step = bool(columns.counters)
        part, epoch = part_of(row, phase, has_step), columns.epoch_of(row)
        for column, name in columns.metrics.items():
            value = parse_number(row[column] or "")
            if value is not None:
                own_part = {} if part.get(column, NUMBERED) != NUMBERED else part
                self.add_counted(prefix + name, step, epoch, value, own_part, has_step)
                read.setdefault(column, set()).add(prefix + name)
            elif ODD_NUMBER.match(text := (row[column] or "").strip()):
                odd.setdefault(column, []).append((text, line))

    def _leave_out_odd(self, odd: OddCells, read: Mapping[str, set[str]]) -> None:
        """Leave out columns of which some cells are numbers and others cannot be read: an earlier
        value would count as the final one. Hashes and one pair (`3,3`) in all rows need no note."""
        for column, cells in odd.items():
            text, line = cells[0]
            for name in read.get(column, ()):
                self.points.pop(name, None)
            is_pair = column not in read and len(cells) > 1 and {text} == {one for one, _ in cells}
            if not (is_pair or HASH.fullmatch(text)) and (
                column in read or WITH_COMMA.fullmatch(text)
            ):
                self.faults[f"column {column}"] = (
                    f"column {column.strip()} is not read: '{text}' in line {line}; write numbers "
                    "with decimal points"
                )

    def _delimiter(self, head: str = "", first: str = "") -> str:
        """What separates the columns: most frequent in the header, as often in the first row."""
        if self.path.suffix.lower() == ".tsv" and "\t" in head:
            return "\t"
        head, first = (re.sub('"[^"]*"', "", line) for line in (head, first))
        return max(
            DELIMITERS, key=lambda one: (head.count(one), head.count(one) == first.count(one))
        )


@dataclass(frozen=True)
class Columns:
    """The columns of a table, by what they are.

    Attributes:
        counters: of steps, the preferred one first.
        epoch: the counter of epochs; empty where there is none.
        phases: say which part of the training a row is of.
        metrics: the name of each other column.
    """

    counters: Sequence[str]
    epoch: str
    phases: Sequence[str]
    metrics: Mapping[str, str]

    def step(self, row: Mapping[str, str], number: int) -> float | None:
        """The step of a row, which is its number where no column counts; None for none."""
        steps = (parse_number(row[column] or "") for column in self.counters)
        known = (step for step in steps if step is not None and not isnan(step))
        return next(known, None if self.counters else number)

    def header_in(self, row: Mapping[Any, Any], above: str) -> list[str]:
        """The names of a later header, below an empty line or with a known one; else empty."""
        cells = [*(row[name] for name in row if name is not None), *row.get(None, ())]
        if any(ODD_NUMBER.match(cell or "") for cell in cells):
            return []
        names = [cell.strip(" \t\ufeff") for cell in cells if cell is not None]
        known = {*STEP_NAMES, *self.metrics.values()}
        is_header = 1 < len(names) == len({*names} - NO_VALUE)
        return names if is_header and (not above.strip() or known.intersection(names)) else []

    def odd_step(self, row: Mapping[str, str]) -> str:
        """A step with a decimal comma; empty where there is none."""
        texts = ((row[column] or "").strip() for column in self.counters)
        return next((text for text in texts if WITH_COMMA.fullmatch(text)), "")

    def epoch_of(self, row: Mapping[str, str]) -> float | None:
        """The epoch that a row states beside its step."""
        is_beside = self.epoch in self.counters[1:]
        return parse_number(row[self.epoch] or "") if is_beside else None

    def phase(self, row: Mapping[str, str]) -> str:
        """The first text in a column of phases; empty where there is none."""
        texts = (text for column in self.phases if (text := (row[column] or "").strip()))
        return next((text for text in texts if parse_number(text) is None), "")


def lines_above_header(lines: Sequence[str]) -> int:
    """The number of empty lines and comments (#) before the header of a table.

    A line that begins with # is the header where numbers follow.
    """
    for number, line in enumerate(lines):
        cells = re.split(f"[{DELIMITERS}]", lines[number + 1]) if number + 1 < len(lines) else [""]
        is_header = any(parse_number(cell) is not None for cell in cells)
        if line.strip() and (is_header or not line.startswith("#")):
            return number
    return 0
