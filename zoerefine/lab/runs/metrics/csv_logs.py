"""CSV files as logs."""

import codecs
import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from zoerefine.lab.runs.metrics.series import (
    EPOCH,
    MAX_BYTES,
    PHASES,
    STEP_NAMES,
    Kind,
    MetricLog,
    parse_number,
    part_of,
)

CSV_SUFFIXES = {".csv", ".tsv"}
DELIMITERS = ",;\t"
ODD_NUMBER = re.compile(r"[-+]?[.,]?\d")  # what begins like a number
WITH_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")


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
        delimiter = self._delimiter(*lines[above : above + 2])
        rows = csv.DictReader(lines[above:], delimiter=delimiter)
        columns = {name: name.strip() for name in rows.fieldnames or []}
        if any(parse_number(name) is not None for name in columns.values()):
            return  # the first row is no header
        lower = {name.lower(): column for column, name in columns.items()}
        counters = [lower[name] for name in STEP_NAMES if name in lower]
        phases = [lower[name] for name in PHASES if name in lower]
        self.has_steps = bool(counters)
        names = [columns[column] for column in rows.fieldnames or ()]
        called = [name.lower() if name.lower() in STEP_NAMES else name for name in names]
        twice = {name for name in called if name and called.count(name) > 1}
        if twice:
            self.faults["columns"] = f"two columns are called {min(twice)}"
        if counters and columns[counters[0]].lower() in twice:
            return  # no value has a certain step
        counters = [column for column in counters if columns[column].lower() not in twice]
        metrics = {
            c: name
            for c, name in columns.items()
            if name and name.lower() not in STEP_NAMES and name not in twice
        }
        odd: dict[str, tuple[str, int]] = {}  # by column, a cell that may be a number, and its line
        read: dict[str, set[str]] = {}  # by column, the metrics that it has
        for number, row in enumerate(rows, 1):
            if above + rows.line_num <= skipped_lines:
                continue
            if earlier_lines and above + rows.line_num > earlier_lines:
                earlier_lines = 0
                self.begin_attempt()
            if any(row.get(None, ())):  # the values without a column
                self.faults["row"] = (
                    f"line {above + rows.line_num} has more values than columns: write decimal "
                    "points, not commas"
                )
                continue
            steps = (parse_number(row[column] or "") for column in counters)
            known = (step for step in steps if step is not None and not isnan(step))
            step = next(known, None if counters else number)
            if step is None:
                if any(WITH_COMMA.fullmatch(text := (row[c] or "").strip()) for c in counters):
                    odd = {counters[0]: (text, above + rows.line_num)}
                    read = {counters[0]: set(self.points)}
                    break
                continue
            finer = len(counters) > 1 and columns[counters[-1]].lower() == EPOCH
            epoch = parse_number(row[counters[-1]] or "") if finer else None
            texts = (text for c in phases if (text := (row[c] or "").strip()))
            phase = next((text for text in texts if parse_number(text) is None), "")
            prefix = f"{phase}." if phase else ""
            part = part_of({column: row[column] for column in columns}, phase)
            for column, name in metrics.items():
                value = parse_number(row[column] or "")
                if value is not None:
                    self.add_counted(
                        prefix + name, step, epoch, value, {} if column in part else part
                    )
                    read.setdefault(column, set()).add(prefix + name)
                elif ODD_NUMBER.match(text := (row[column] or "").strip()):
                    odd.setdefault(column, (text, above + rows.line_num))
        self._leave_out_odd(odd, read)

    def _leave_out_odd(
        self, odd: Mapping[str, tuple[str, int]], read: Mapping[str, set[str]]
    ) -> None:
        """Leave out columns of which some cells are numbers and others cannot be read: an earlier
        value would count as the final one."""
        for column, (text, line) in odd.items():
            if column in read or WITH_COMMA.fullmatch(text):
                for name in read.get(column, ()):
                    self.points.pop(name, None)
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
