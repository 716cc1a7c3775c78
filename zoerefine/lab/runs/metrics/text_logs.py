"""Logs that are text: tables, JSON, and a job's output."""

import codecs
import csv
import io
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import isnan
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import require_file
from zoerefine.base.yaml.keys import flatten
from zoerefine.lab.runs.metrics.pattern import MetricPattern
from zoerefine.lab.runs.metrics.series import (
    EPOCH,
    STEP_NAMES,
    Kind,
    MetricLog,
    as_number,
    parse_number,
    part_of,
)

LONGEST_LINE = 2**20  # bytes; a longer one is read in parts


@dataclass
class LineReader:
    """Reads what was appended to a file since the last time; all of it where it became shorter.

    Attributes:
        number: the number of the last line that was read, from 1.
    """

    path: Path
    number: int = 0
    offset: int = 0

    def new_lines(self, ended: bool) -> Iterator[str]:
        """The complete new lines, with their ends.

        Args:
            ended: a last line without its end is complete, too.
        """
        with open(self.path, "rb") as file:
            if file.seek(0, 2) < self.offset:
                self.number = self.offset = 0
            file.seek(self.offset)
            while line := file.readline(LONGEST_LINE):
                if not line.endswith(b"\n") and not ended and len(line) < LONGEST_LINE:
                    return
                self.offset += len(line)
                self.number += 1
                yield line.decode("utf-8", "replace")


@dataclass
class LineLog(MetricLog):
    """A log that is read line by line.

    Attributes:
        since: where in the file the job's last start is. What stands before counts only with a
            step of its own that has not come again: see `begin_attempt`.
        skipped: how many bytes at the beginning are not the job's.
    """

    since: int = 0
    skipped: int = 0
    has_begun: bool = False
    reader: LineReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = LineReader(self.path)

    def is_earlier(self, end: int) -> bool:
        """Whether the line that ends there is of an earlier attempt of the job."""
        if end <= self.since:
            return True
        if self.since and not self.has_begun:
            self.has_begun = True
            self.begin_attempt()
        return False


MAX_BYTES = 64 * 2**20  # a larger file is data, not a log
CSV_SUFFIXES = {".csv", ".tsv"}
DELIMITERS = ",;\t"
# Say which part of the training a row is of: `train`, `val`. The first part of its metrics' names.
PHASES = ("phase", "split", "mode")
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


@dataclass
class JsonLog(LineLog):
    """metrics.jsonl: one JSON object a line, with a step and metrics, which may be nested.

    Attributes:
        lines_before: lines before the job's last start.
    """

    lines_before: int = 0

    @property
    def kind(self) -> Kind:
        return Kind.ROWS

    def update(self, ended: bool) -> None:
        """Read the new rows."""
        for line in self.reader.new_lines(ended):
            if self.reader.offset <= self.skipped:
                self.lines_before = self.reader.number
                continue
            if self.is_earlier(self.reader.offset):
                self.lines_before = self.reader.number
            row = parse_object(line)
            if row is not None:
                self._add_row(row)
            elif line.rstrip().endswith("}"):  # else a kill cut it off
                self.faults["line"] = f"line {self.reader.number} is not a JSON object"

    def _add_row(self, row: dict[str, Any]) -> None:
        step = step_of(row)
        if step is None and self.reader.offset <= self.since:
            return
        step = self.reader.number - self.lines_before if step is None else step
        phase = next((row[name] for name in PHASES if isinstance(row.get(name), str)), "")
        prefix = f"{phase}." if phase else ""
        epoch, part = as_number(row.get(EPOCH)), part_of(row, phase)
        for name, value in row.items():
            number = as_number(value)
            if number is not None and name not in STEP_NAMES and not isnan(step):
                self.add_counted(prefix + name, step, epoch, number, {} if name in part else part)


# Files of JSON objects, one a line: scalars.json of MMLab, metrics.json of detectron2, any .jsonl.
# Or one document: metrics.json of DVC and Sacred, all_results.json of Hugging Face.
JSON_FILES = re.compile(
    r"scalars\.json|.*\.(jsonl|log\.json)|((?P<part>.*)[_-])?(metrics|results)\.json"
)
SACRED_RUN = "run.json"  # beside the metrics.json of Sacred


@dataclass
class RowsLog(JsonLog):
    """Another program's JSON objects, one a line, or one document with its final metrics.

    A file of another form holds nothing.

    Attributes:
        form: as which kind of log it counts. Rows without a step count as a table without one.
    """

    form: Kind = Kind.TABLE

    @property
    def kind(self) -> Kind:
        return self.form

    def update(self, ended: bool) -> None:
        """Read the new rows, or the document anew."""
        if self.path.stat().st_size > MAX_BYTES:
            self.faults["size"] = f"larger than {MAX_BYTES >> 20} MiB, so it is not read"
            return
        with open(self.path, "rb") as file:
            first = file.readline(LONGEST_LINE)
            is_single = self.path.suffix == ".json" and not file.readline(LONGEST_LINE).strip()
        row = parse_object(first.decode("utf-8", "replace"))
        if row is None or is_single:
            self._read_document()
            return
        if self.form is Kind.DOCUMENT:  # its first line was
            self.points = {}
        self.form = Kind.LOOSE_TABLE if step_of(row) is None else Kind.TABLE
        super().update(ended)

    def _read_document(self) -> None:
        if self.path.suffix != ".json":
            return
        self.form, self.points = Kind.DOCUMENT, {}
        text = self.path.read_text(encoding="utf-8", errors="replace")
        document = parse_object(text) or {}
        step = step_of(document) or 1
        for name, value in document.items():
            number, steps = as_number(value), document.get(f"{name.removesuffix('values')}steps")
            if number is not None and name not in STEP_NAMES:
                self.add(name, step, number)
            elif name.endswith(".values") and isinstance(value, list) and isinstance(steps, list):
                self.form = Kind.TABLE  # Sacred's
                for at, one in zip(map(as_number, steps), map(as_number, value), strict=False):
                    if at is not None and one is not None and not isnan(at):
                        self.add(name.removesuffix(".values"), at, one)


def step_of(row: Mapping[str, Any]) -> float | None:
    """The step that a row of JSON states; None where it has none."""
    steps = (as_number(row.get(name)) for name in STEP_NAMES)
    return next((step for step in steps if step is not None), None)


TRAINER_STATE = "trainer_state.json"  # of Hugging Face's Trainer, also in each of its checkpoints


@dataclass
class TrainerStateLog(MetricLog):
    """The state of Hugging Face's Trainer: its `log_history` is a list of rows."""

    stamp: tuple[int, ...] = ()

    @property
    def kind(self) -> Kind:
        return Kind.TABLE

    def update(self, ended: bool) -> None:
        """Read the file if it has changed."""
        status = self.path.stat()
        stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
        if stamp == self.stamp:
            return
        self.stamp = stamp
        self.forget()
        try:
            rows = json.loads(self.path.read_bytes())["log_history"]
            numbers = [{k: as_number(v) for k, v in row.items()} for row in rows]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.faults["file"] = f"its log_history cannot be read: {type(error).__name__}"
            return
        for row in numbers:
            step = row.pop("step", None)
            for name, value in row.items():
                if step is not None and value is not None and name not in STEP_NAMES:
                    self.add(name, step, value)


def read_results(path: Path) -> tuple[dict[str, float], str]:
    """Every number in a results.json by its name, and why the file cannot be read, if so."""
    try:
        require_file(path)
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}, ""
    except UserError:
        return {}, "it is not a regular file of a usual size"
    except OSError as error:
        return {}, f"it cannot be read: {error.strerror}"
    document = parse_object(text)
    if document is None:
        return {}, "it is not a JSON object"
    numbers = {name: as_number(value) for name, value in document.items() if name != "schema"}
    return {name: number for name, number in numbers.items() if number is not None}, ""


def parse_object(text: str) -> dict[str, Any] | None:
    """The leaves of a JSON object by their path; None where the text is something else."""
    try:
        value = json.loads(text.removeprefix("\ufeff"))
        return flatten(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


LINES, LIMIT_S = 1000, 5.0  # a pattern may take exponential time


@dataclass(kw_only=True)
class OutputLog(LineLog):
    """A job's output. A value without a step has the count of the metric's values as its step."""

    patterns: list[MetricPattern]

    @property
    def kind(self) -> Kind:
        return Kind.OUTPUT

    def update(self, ended: bool) -> None:
        """Search the new lines, until the pattern takes too long once."""
        lines = ((self.reader.offset, line) for line in self.reader.new_lines(ended))
        while not self.faults and (some := list(islice(lines, LINES))):
            try:
                self._search(some, time.monotonic() + LIMIT_S)
            except TimeoutError:
                self.faults["pattern"] = (
                    f"a metric pattern takes more than {LIMIT_S:g} s for {LINES} lines: use a "
                    "simpler one"
                )

    def _search(self, lines: list[tuple[int, str]], deadline: float) -> None:
        """Raises `TimeoutError` at the deadline, a time of `time.monotonic`."""
        for (end, line), pattern in product(lines, self.patterns):
            is_earlier = self.is_earlier(end)
            for name, step, value in pattern.find(line, deadline - time.monotonic()):
                if step is None and is_earlier:
                    continue
                counted = len(self.points.get(name, ())) + 1
                self.add(name, counted if step is None else step, value)
