"""CSV files as logs."""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan

from zoerefine.base.errors import first_few
from zoerefine.lab.runs.metrics.series import (
    EPOCH,
    MAX_BYTES,
    NAMED,
    NO_LABEL,
    ODD_NUMBER,
    PHASES,
    STEP_NAMES,
    Kind,
    MetricLog,
    label_of,
    parse_number,
    part_of,
)

CSV_SUFFIXES = {".csv", ".tsv"}
DELIMITERS = ",;\t"
WITH_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
EXCEL = re.compile(r"sep=.")  # a first line that names the separator
MEASURED = re.compile(r"[-+]?[\d.]+\s*(%|(±|\+/?-).*)")  # 90%, 0.9 ± 0.1
HASH = re.compile(r"[\da-f]{7,}", re.IGNORECASE)
NUMBER_CELL = re.compile(rf'(^|[{DELIMITERS}"])\s*{ODD_NUMBER.pattern}')  # in a line
NO_NAME = re.compile(r"(Unnamed: \d+)?")  # of an index, as pandas reads it back

Row = tuple[int, list[str]]  # its line, from 1, and its cells


@dataclass
class CsvLog(MetricLog):
    """A CSV file. It is read again whenever it has changed, since many scripts write it anew.

    Attributes:
        since, skipped: as of a `LineLog`.
        has_steps: whether a column counts steps; otherwise a row's number, from 1, is its step.
        odd: by column, the cells that may be numbers and cannot be read, each with its line.
        words: by column, the word that stands below its last number, with its line.
        prefixes: what stands before the names of metrics, for each phase.
    """

    since: int = 0
    skipped: int = 0
    has_steps: bool = False
    odd: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    words: dict[str, tuple[str, int]] = field(default_factory=dict)
    prefixes: set[str] = field(default_factory=set)

    @property
    def kind(self) -> Kind:
        return Kind.TABLE if self.has_steps else Kind.LOOSE_TABLE

    def update(self, ended: bool) -> None:
        """Read the file if it has changed."""
        if not self.has_changed(ended):
            return
        self.forget()
        self.has_steps, self.odd, self.words, self.prefixes = False, {}, {}, set()
        if self.stamp[0] > MAX_BYTES:
            self.faults["size"] = f"larger than {MAX_BYTES >> 20} MiB, so it is not read"
            return
        data = self.path.read_bytes()
        is_wide = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # PowerShell's
        text = data.decode("utf-16" if is_wide else "utf-8-sig", "replace")
        complete = text if ended else text[: text.rfind("\n") + 1]
        try:
            self._read(complete, *(data[:n].count(b"\n") for n in (self.since, self.skipped)))
        except csv.Error as error:
            self.faults["row"] = f"not a valid CSV file: {error}"

    def _read(self, text: str, earlier_lines: int, skipped_lines: int) -> None:
        count = 0
        for line, header, rows in tables_in(list(io.StringIO(text, newline=None))):
            columns = self._columns(header, rows, line)
            if columns is None:
                break
            for number, (at, cells) in enumerate(rows, count + 1):
                if at <= skipped_lines:
                    continue
                if earlier_lines and at > earlier_lines:
                    earlier_lines = 0
                    self.begin_attempt()
                if len(cells) > len(header) and any(cells[len(header) :]):
                    self.faults["row"] = (
                        f"line {at} has more values than columns: write decimal points, not commas"
                    )
                    continue
                if not self._add_row(columns, cells, number, at):
                    return
            count += len(rows)
        self._leave_out_odd()

    def _columns(self, header: Sequence[str], rows: Sequence[Row], line: int) -> "Columns | None":
        """What the columns are; None where no value has a certain step, or there is no header."""
        names = [name.strip() for name in header]
        if any(parse_number(name) is not None for name in names):
            return None  # the first row is no header
        lower = [name.lower() for name in names]
        called = [name.lower() if name.lower() in STEP_NAMES else name for name in names]
        twice = {name for name in called if name and called.count(name) > 1}
        if twice:
            self.faults["columns"] = f"two columns are called {min(twice)}"
        counters = [lower.index(name) for name in STEP_NAMES if name in lower]
        later = (row[index] for _, row in rows[1:] for index in counters if index < len(row))
        if len(rows) > 2 and not any(map(str.strip, later)):
            counters = []  # the first row alone states a step
        had_steps, self.has_steps = self.has_steps, self.has_steps or bool(counters)
        if counters and called[counters[0]] in twice:
            return None
        metrics = {
            index: name
            for index, name in enumerate(called)
            if name not in STEP_NAMES and name not in twice and not NO_NAME.fullmatch(name)
        }
        if had_steps and not counters:
            metrics = self._without_lost(metrics, line)
        return Columns(
            names=names,
            counters=[index for index in counters if called[index] not in twice],
            epoch=lower.index(EPOCH) if EPOCH in lower else -1,
            phases=[lower.index(name) for name in PHASES if name in lower],
            parts={index for index, name in enumerate(lower) if label_of(name, "1")},
            metrics=metrics,
        )

    def _without_lost(self, metrics: dict[int, str], line: int) -> dict[int, str]:
        """The metrics below a later header without steps: none that has steps above it."""
        lost = [name for name in metrics.values() if name in self.points]
        if lost:
            self.faults["header"] = (
                f"the header in line {line} has no column of steps, so {first_few(lost, NAMED)} "
                f"below it {'is' if len(lost) == 1 else 'are'} not read"
            )
        return {index: name for index, name in metrics.items() if name not in lost}

    def _add_row(self, columns: "Columns", cells: list[str], number: int, line: int) -> bool:
        """Whether what follows can be read: a step that cannot be read leaves out everything."""
        cells = (cells + [""] * len(columns.names))[: len(columns.names)]
        values = [*map(parse_number, cells)]
        known = [step for i in columns.counters if (step := values[i]) is not None]
        step = next((step for step in known if not isnan(step)), None)
        if columns.counters and step is None:
            texts = (cells[index].strip() for index in columns.counters)
            odd = next((text for text in texts if ODD_NUMBER.match(text)), "")
            if odd:
                self.points = {}
                self._note_odd(columns.names[columns.counters[0]], odd, line)
            return not odd
        phase, part = columns.phase_and_part(cells, values)
        prefix = f"{phase}." if phase else ""
        self.prefixes.add(prefix)
        epoch = values[columns.epoch] if columns.epoch in columns.counters[1:] else None
        for index, name in columns.metrics.items():
            value = values[index]
            if value is not None:
                at = number if step is None else step
                self.add_counted(prefix + name, at, epoch, value, part, step is not None)
                if self.words:
                    self.words.pop(name, None)
            elif ODD_NUMBER.match(text := cells[index].strip()):
                self.odd.setdefault(name, []).append((text, line))
            elif not NO_LABEL.fullmatch(text):
                self.words[name] = text, line
        return True

    def _leave_out_odd(self) -> None:
        """Leave out columns of which some cells are numbers and others cannot be read, or the last
        is a word (`diverged`): an earlier value would count as the final one. Hashes and one pair
        (`3,3`) in all rows need no note."""
        for column, (text, line) in self.words.items():
            if any([self.points.pop(prefix + column, None) for prefix in self.prefixes]):
                self._note_odd(column, text, line)
        for column, cells in self.odd.items():
            text, line = cells[0]
            read = [self.points.pop(prefix + column, None) for prefix in self.prefixes]
            is_pair = not any(read) and len(cells) > 1 and {text} == {one for one, _ in cells}
            is_measured = MEASURED.fullmatch(text) and "parts" not in self.faults
            is_value = any(read) or WITH_COMMA.fullmatch(text) or is_measured
            if is_value and not (is_pair or HASH.fullmatch(text)):
                self._note_odd(column, text, line)

    def _note_odd(self, column: str, text: str, line: int) -> None:
        self.faults[f"column {column}"] = (
            f"column {column} is not read: '{text}' in line {line}; write numbers with decimal "
            "points"
        )


@dataclass(frozen=True)
class Columns:
    """The columns of a table, by what they are.

    Attributes:
        names: of all of them.
        counters: of steps, the preferred one first.
        epoch: the counter of epochs; -1 where there is none.
        phases: say which part of the training a row is of.
        parts: say so, too, also by numbers.
        metrics: the name of each other column.
    """

    names: Sequence[str]
    counters: Sequence[int]
    epoch: int
    phases: Sequence[int]
    parts: set[int]
    metrics: dict[int, str]

    def phase_and_part(
        self, cells: Sequence[str], values: Sequence[float | None]
    ) -> tuple[str, dict[str, str]]:
        """The first text in a column of phases, empty where there is none; and `part_of`."""
        texts = (cells[index].strip() for index in self.phases if values[index] is None)
        phase = next(filter(None, texts), "")
        told = self.parts
        if None in values:
            told = self.parts | {i for i, value in enumerate(values) if value is None}
        row = {self.names[index]: cells[index] for index in sorted(told)}
        return phase, part_of(row, phase, bool(self.counters)) if row else {}


def tables_in(lines: Sequence[str]) -> Iterator[tuple[int, list[str], list[Row]]]:
    """The tables of a file below each other: the header's line, its names, and the rows."""
    begin = lines_above_header(lines)
    while begin < len(lines):
        reader = csv.reader(lines[begin:], delimiter=delimiter_of(*lines[begin : begin + 2]))
        header, first, rows, has_numbers = next(reader), begin, list[Row](), False
        header[:1] = [name.removeprefix("# ") for name in header[:1]]  # as numpy.savetxt writes it
        begin = len(lines)
        for cells in reader:
            at = first + reader.line_num - 1
            if NUMBER_CELL.search(lines[at]):
                has_numbers = True
            elif has_numbers and is_header(lines[at - 1 : at + 2], header):
                begin = at
                break
            if cells:
                rows.append((at + 1, cells))
        yield first + 1, header, rows


def is_header(lines: Sequence[str], header: Sequence[str]) -> bool:
    """Whether the second of three lines is a later header: its names are known, or apart."""
    cells = next(csv.reader(lines[1:], delimiter=delimiter_of(*lines[1:])))
    names = [cell.strip(" \t\r\n\ufeff") for cell in cells]
    words = {name for name in names if not NO_LABEL.fullmatch(name) and parse_number(name) is None}
    known = words.intersection((*STEP_NAMES, *map(str.strip, header)))
    is_again = names == [name.strip() for name in header]
    return is_again or (1 < len(names) == len(words) and bool(known or not lines[0].strip()))


def delimiter_of(head: str, first: str = "") -> str:
    """What separates the columns: most frequent in both lines, or in the header."""
    head, first = (re.sub('"[^"]*"', "", line) for line in (head, first))
    counts = {one: (head.count(one), first.count(one)) for one in DELIMITERS}
    return max(counts, key=lambda one: (min(counts[one]), counts[one]))


def lines_above_header(lines: Sequence[str]) -> int:
    """The number of empty lines and comments (#) before the header of a table.

    A line that begins with # is the header where numbers follow.
    """
    for number, line in enumerate(lines):
        cells = re.split(f"[{DELIMITERS}]", lines[number + 1]) if number + 1 < len(lines) else [""]
        is_header = any(parse_number(cell) is not None for cell in cells)
        if EXCEL.fullmatch(line.strip()):
            continue
        if line.strip() and (is_header or not line.startswith("#")):
            return number
    return 0
