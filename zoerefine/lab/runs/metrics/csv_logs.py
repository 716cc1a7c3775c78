"""CSV files as logs."""

import codecs
import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan

from zoerefine.lab.runs.metrics.metric_log import MAX_BYTES, Kind, MetricLog
from zoerefine.lab.runs.metrics.steps import (
    NO_LABEL,
    PHASES,
    STEP_NAMES,
    VARYING,
    WRAPPED,
    counter_of,
    is_odd,
    label_of,
    parse_number,
    part_of,
    phase_of,
)

CSV_SUFFIXES = {".csv", ".tsv"}
DELIMITERS = ",;\t"
WITH_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
EXCEL = re.compile(r"sep=.")  # a first line that names the separator
NUMBER_INSIDE = re.compile(  # 90%, 0.9 ± 0.1, tensor(0.5)
    rf"[-+]?[\d.]+\s*(%|(±|\+/?-).*)$|{WRAPPED.pattern}"
)
HASH = re.compile(r"[\da-f]{7,}", re.IGNORECASE)
NO_NAME = re.compile(r"(Unnamed: \d+)?")  # of an index, as pandas reads it back
RATES = {"lr", "learning_rate"}


@dataclass
class CsvLog(MetricLog):
    """A CSV file. It is read again whenever it has changed, since many scripts write it anew.

    Attributes:
        odd: by column, the cells that may be numbers and cannot be read, each with its line.
        words: by column, the word that stands below its last number, with its line.
        prefixes: what stands before the names of metrics, for each phase.
    """

    odd: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    words: dict[str, tuple[str, int]] = field(default_factory=dict)
    prefixes: set[str] = field(default_factory=set)

    def update(self, ended: bool) -> None:
        """Read the file if it has changed."""
        if not self.has_changed(ended):
            return
        self.forget()
        self.odd, self.words, self.prefixes = {}, {}, set()
        self.kind, self.may_be_data = Kind.DOCUMENT, False
        if self.stamp[0] > MAX_BYTES:
            self.faults["size"] = f"larger than {MAX_BYTES >> 20} MiB, so it is not read"
            return
        data = self.path.read_bytes()
        is_wide = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # PowerShell's
        text = data.decode("utf-16" if is_wide else "utf-8-sig", "replace")
        complete = text if ended else text[: text.rfind("\n") + 1]
        lines = list(io.StringIO(complete, newline=None))
        try:
            self._read(lines, data)
        except csv.Error as error:
            self.faults["row"] = f"not a valid CSV file: {error}"
        self._leave_out_odd()
        self.settle(ended)

    def _read(self, lines: Sequence[str], data: bytes) -> None:
        lines_before, skipped = (data[:end].count(b"\n") for end in (self.since, self.skipped))
        begin = lines_above_header(lines)
        delimiter = delimiter_of(*lines[begin : begin + 2])
        reader = csv.reader(lines[begin:], delimiter=delimiter, strict=True)
        names = [name.strip() for name in next(reader, [])]
        names[:1] = [name.removeprefix("# ") for name in names[:1]]  # as numpy.savetxt writes it
        columns = self._columns(names)
        has_begun, number = not self.since, 0
        for cells in reader:
            line = begin + reader.line_num
            if columns is None:
                return
            if not cells or line <= skipped:
                continue
            begins = not has_begun and line > lines_before
            if begins:
                has_begun = True
                self.begin_attempt()
                if not data[: self.since].endswith(b"\n"):
                    self.faults["cut"] = f"line {line} is not read: a kill cut it off"
                    continue
            values = [*map(parse_number, cells)]
            if values.count(None) == len(cells) and is_header(cells, names, lines[line - 2]):
                found = [cell.strip() for cell in cells]
                if found != names and not begins:
                    return self._refuse_second_table(line)
                names, columns = found, self._columns(found)
            elif self._has_all_columns(cells, names, line):
                number += 1
                if not self._add_row(columns, cells, values, number, line):
                    return

    def _columns(self, names: Sequence[str]) -> "Columns | None":
        """What the columns are; None where no value has a certain step, or there is no header."""
        if any(parse_number(name) is not None for name in names):
            return None  # the first row is no header
        lower = [name.lower() for name in names]
        called = [counter_of(name) or name for name in names]
        twice = {name for name in called if name and called.count(name) > 1}
        if twice:
            self.faults["columns"] = f"two columns are called {min(twice)}"
        self.may_be_data = not set(called).intersection(STEP_NAMES)
        counters = sorted((STEP_NAMES.index(n), i) for i, n in enumerate(called) if n in STEP_NAMES)
        if counters and called[counters[0][1]] in twice:
            return None
        return Columns(
            names=names,
            counters={i: called[i] for _, i in counters if called[i] not in twice},
            phases=[lower.index(name) for name in PHASES if name in lower],
            parts={index for index, name in enumerate(lower) if label_of(name, "1")},
            metrics={
                index: name
                for index, name in enumerate(called)
                if name not in STEP_NAMES and name not in twice and not NO_NAME.fullmatch(name)
            },
        )

    def _refuse_second_table(self, line: int) -> None:
        self.discard()
        self.faults["header"] = (
            f"a second table begins in line {line}, so neither is read: write a file for each"
        )

    def _has_all_columns(self, cells: Sequence[str], names: Sequence[str], line: int) -> bool:
        """Whether a row has a value for each column; the step alone, or an empty end, is well."""
        is_short = 1 < len(cells) < len(names)
        if is_short or any(cells[len(names) :]):
            self.faults["row"] = (
                f"line {line} has {len(cells)} values for {len(names)} columns, so it is not read: "
                "write decimal points, not commas, and a separator for each empty cell"
            )
            return False
        return True

    def _add_row(
        self,
        columns: "Columns",
        cells: list[str],
        values: list[float | None],
        number: int,
        line: int,
    ) -> bool:
        """Whether what follows can be read: a step that cannot be read leaves out everything."""
        if missing := max(0, len(columns.names) - len(cells)):
            cells, values = [*cells, *[""] * missing], [*values, *[None] * missing]
        counters = columns.steps(values, number)
        self.ends_empty = bool(counters)
        if columns.counters and not counters:
            texts = (cells[index].strip() for index in columns.counters)
            odd = next(filter(is_odd, texts), "")
            if odd:
                self.discard()
                self._note_odd(columns.names[next(iter(columns.counters))], odd, line)
                return False
        phase, part = columns.phase_and_part(cells, values)
        prefix = f"{phase}." if phase else ""
        self.prefixes.add(prefix)
        for index, name in columns.metrics.items():
            value = values[index]
            if value is not None:
                self.ends_empty = False
                self.add_counted(prefix + name, counters, value, part)
                if self.words:
                    self.words.pop(name, None)
            elif is_odd(text := cells[index].strip()):
                self.odd.setdefault(name, []).append((text, line))
            elif not NO_LABEL.fullmatch(text):
                self.words[name] = text, line
        return True

    def _leave_out_odd(self) -> None:
        """Leave out columns of which some cells are numbers and others cannot be read, or the last
        is a word (`diverged`): an earlier value would count as the final one. Hashes, notes and one
        pair (`3,3`) in all rows are not named."""
        for column, (text, line) in self.words.items():
            read = [self.discard_metric(prefix + column) for prefix in self.prefixes]
            is_aside = VARYING.fullmatch(column.lower()) or HASH.fullmatch(text)
            if any(read) and not is_aside:
                self._note_odd(column, text, line)
        for column, cells in self.odd.items():
            text, line = cells[0]
            read = [self.discard_metric(prefix + column) for prefix in self.prefixes]
            is_pair = not any(read) and len(cells) > 1 and {text} == {one for one, _ in cells}
            is_measured = NUMBER_INSIDE.match(text) and "parts" not in self.faults
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
        counters: what columns count, the preferred one first.
        phases: columns that say which part of the training a row is of.
        parts: columns that say so, too, also by numbers.
        metrics: the name of each other column.
    """

    names: Sequence[str]
    counters: Mapping[int, str]
    phases: Sequence[int]
    parts: set[int]
    metrics: Mapping[int, str]

    @cached_property
    def is_history(self) -> bool:
        """Whether the rows are the epochs of Keras' `History`, as pandas writes it: without a step,
        and nothing but metrics, each beside that of the validation."""
        names = set(self.metrics.values()) - RATES
        pairs = {name.removeprefix("val_") for name in names}
        return not self.counters and names == pairs | {f"val_{name}" for name in pairs}

    def steps(self, values: Sequence[float | None], number: int) -> dict[str, float]:
        """The steps that a row states, the preferred one first.

        Args:
            number: of the row, from 1. The index of a history counts from 0.
        """
        if self.is_history:
            indices = [one for one, name in zip(values, self.names, strict=False) if not name]
            return {STEP_NAMES[0]: float(number)} if set(indices) <= {number - 1} else {}
        found = ((name, values[index]) for index, name in self.counters.items())
        return {name: step for name, step in found if step is not None and not isnan(step)}

    def phase_and_part(
        self, cells: Sequence[str], values: Sequence[float | None]
    ) -> tuple[str, dict[str, str]]:
        """The first text in a column of phases, empty where there is none; and `part_of`."""
        texts = (cells[index].strip() for index in self.phases if values[index] is None)
        phase = phase_of(texts)
        told = self.parts
        if None in values:
            told = self.parts | {i for i, value in enumerate(values) if value is None}
        row = {self.names[index]: cells[index] for index in sorted(told) if index < len(self.names)}
        return phase, part_of(row, phase) if row else {}


def is_header(cells: Sequence[str], names: Sequence[str], line_above: str) -> bool:
    """Whether a row of words is a header: it has a word for each column, or one that is known, or
    stands apart. Empty cells and signs of a missing value are no words of one."""
    found = [cell.strip(" \t\r\n\ufeff") for cell in cells]
    words = {word for word in found if not NO_LABEL.fullmatch(word)}
    is_apart = not words.isdisjoint((*STEP_NAMES, *names)) or not line_above.strip()
    is_new = 1 < len(words) == len(found) and (len(words) == len(names) or is_apart)
    return found == list(names) or is_new


def delimiter_of(head: str = "", first: str = "") -> str:
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
