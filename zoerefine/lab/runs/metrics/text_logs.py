"""Logs that are text: JSON, and a job's output."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import isnan
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.messages import first_few
from zoerefine.base.run_dir import require_file
from zoerefine.base.yaml.keys import flatten
from zoerefine.lab.runs.metrics.metric_log import MAX_BYTES, NAMED, Kind, MetricLog
from zoerefine.lab.runs.metrics.pattern import MetricPattern
from zoerefine.lab.runs.metrics.steps import (
    NO_LABEL,
    PHASES,
    STEP_NAMES,
    as_number,
    counter_of,
    is_odd,
    parse_number,
    part_of,
    phase_of,
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
    """A log that is read line by line."""

    has_begun: bool = False
    reader: LineReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = LineReader(self.path)

    def leave_out_before(self, name: str, text: str) -> None:
        """A metric has a text for a value: an earlier one could count as the final one."""
        self.discard_metric(name)
        self.faults[f"value of {name}"] = (
            f"values of {name} up to '{text[:40]}' are left out, which is not a number: write "
            "digits and a decimal point; a pattern's group may end there"
        )

    def is_earlier(self, end: int) -> bool:
        """Whether the line that ends there is of an earlier attempt of the job."""
        if end <= self.since:
            return True
        if self.since and not self.has_begun:
            self.has_begun = True
            self.begin_attempt()
        return False


@dataclass
class JsonLog(LineLog):
    """metrics.jsonl: one JSON object a line, with a step and metrics, which may be nested."""

    kind: Kind = Kind.ROWS

    def update(self, ended: bool) -> None:
        """Read the new rows."""
        for line in self.reader.new_lines(ended):
            if self.reader.offset <= self.skipped:
                continue
            self.is_earlier(self.reader.offset)
            row = parse_object(line)
            if row is not None:
                self._add_row(row)
            elif line.rstrip().endswith("}"):  # else a kill cut it off
                self.faults["line"] = f"line {self.reader.number} is not a JSON object"
        self.settle(ended)

    def _add_row(self, row: dict[str, Any]) -> None:
        counters = steps_of(row)
        self.ends_empty = bool(counters) and None in row.values()
        low = {name.lower(): value for name, value in row.items()}
        phase = phase_of(low[name] for name in PHASES if isinstance(low.get(name), str))
        prefix, part = f"{phase}." if phase else "", part_of(row, phase)
        for name, value in row.items():
            number = as_number(value)
            if number is not None and not counter_of(name) and not name.startswith(CONFIG):
                self.ends_empty = False
                self.add_counted(prefix + name, counters, number, part)
            elif counters and prefix + name in self.points and is_word(value):
                self.leave_out_before(prefix + name, value)


# Files of JSON objects, one a line: scalars.json of MMLab, metrics.json of detectron2, log.txt of
# DETR and its successors, progress.json of Stable-Baselines3, result.json of Ray, any .jsonl.
# Or one document: metrics.json of DVC and Sacred, all_results.json of Hugging Face, history.json of
# skorch, which is a list of rows.
JSON_FILES = re.compile(
    r"(scalars|trainer_state|all_results|progress|result|history)\.json"
    r"|.*\.(jsonl|log\.json)|log\.txt"
    r"|((?P<part>.*)[_-])?(metrics|results)\.json"
)
# Of Hugging Face: the values of the first are final ones, the second has those over steps.
ALL_RESULTS, TRAINER_STATE, HISTORY = "all_results.json", "trainer_state.json", "log_history"
OF_LINES = (".jsonl", ".log.json", "scalars.json", "progress.json", ".txt")  # never a document
AS_PROGRESS = ("progress.json", "result.json")  # the same rows as in progress.csv beside it
CONFIG = "config."  # of Ray, in each row
SACRED_RUN = "run.json"  # beside the metrics.json of Sacred


@dataclass
class RowsLog(JsonLog):
    """Another program's JSON objects, one a line, or one document with its final metrics.

    A file of another form holds nothing.

    Attributes:
        epoch: that a document states, at its end.
    """

    kind: Kind = Kind.DOCUMENT
    epoch: float | None = None

    def update(self, ended: bool) -> None:
        """Read the new rows, or the document anew."""
        if self.path.stat().st_size > MAX_BYTES:
            self.faults["size"] = f"larger than {MAX_BYTES >> 20} MiB, so it is not read"
            return
        with open(self.path, "rb") as file:
            first = file.readline(LONGEST_LINE)
            is_single = not file.readline(LONGEST_LINE).strip()
        row = parse_object(first.decode("utf-8", "replace"))
        if row is None and self.path.suffix == ".txt":
            return  # any other text
        if (row is None or is_single) and not self.path.name.endswith(OF_LINES):
            self._read_document(ended)
            return
        if self.kind is Kind.DOCUMENT and not self.counted:  # its first line was
            self.points = {}
        super().update(ended)
        self.may_be_data = self.kind is Kind.DOCUMENT

    def _read_document(self, ended: bool) -> None:
        if self.path.suffix != ".json" or not self.has_changed(ended):
            return
        self.forget()
        self.kind = Kind.DOCUMENT
        text = self.path.read_text(encoding="utf-8", errors="replace")
        document = parse_object(text, HISTORY) or {}
        self.epoch = steps_of(document).get("epoch")
        if isinstance(rows := document.get(HISTORY), list):
            return self._read_history(rows, ended)
        if self.path.name == TRAINER_STATE:
            self.faults["file"] = f"its {HISTORY} cannot be read"
            return
        step = next(iter(steps_of(document).values()), 1.0)
        for name, value in document.items():
            number, steps = as_number(value), document.get(f"{name.removesuffix('values')}steps")
            if number is not None and not counter_of(name):
                self.add(name, step, number)
            elif name.endswith(".values") and isinstance(value, list) and isinstance(steps, list):
                self.kind = Kind.TABLE  # Sacred's
                for at, one in zip(map(as_number, steps), map(as_number, value), strict=False):
                    if at is not None and one is not None and not isnan(at):
                        self.add(name.removesuffix(".values"), at, one)

    def _read_history(self, rows: list[Any], ended: bool) -> None:
        """A list of rows: of skorch, or of Hugging Face's Trainer, whose epochs are no steps."""
        for row in (row for row in rows if isinstance(row, dict)):
            is_of_trainer = self.path.name == TRAINER_STATE
            self._add_row({k: v for k, v in row.items() if k != "epoch" or not is_of_trainer})
        self.settle(ended)
        self.may_be_data = self.kind is Kind.DOCUMENT


def is_word(value: Any) -> bool:
    """Whether a JSON value is a text that does not stand for a missing one."""
    return isinstance(value, str) and not NO_LABEL.fullmatch(value.strip())


def read_reports(logs: Sequence[MetricLog], restarted: float) -> None:
    """Give each state of Hugging Face's Trainer the final values of the all_results.json in its
    folder, or above that of its checkpoint, unless that is of an earlier epoch or attempt.

    Args:
        restarted: when the job was started again, in seconds since the epoch; 0 where it was not.
    """
    rows = {log.path: log for log in logs if isinstance(log, RowsLog)}
    for log in rows.values():
        log.reported, log.repeated = {}, set()
    for state in (log for log in rows.values() if log.path.name == TRAINER_STATE):
        folders = state.path.parents[:2]
        found = [rows[path / ALL_RESULTS] for path in folders if path / ALL_RESULTS in rows]
        for report in found[:1]:
            epochs = report.epoch, state.epoch
            # Some versions round it to two digits.
            is_old = None not in epochs and epochs[0] < epochs[1] - 0.005  # type: ignore[operator]
            is_old = is_old or report.is_before(restarted) > state.is_before(restarted)
            report.repeated |= state.points.keys() & report.points.keys()
            if not is_old:
                state.reported = {
                    name: next(reversed(report.points[name].values())) for name in report.repeated
                }


def steps_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The steps that a row of JSON states, by what they count, the preferred one first.

    Some scripts write numbers as texts.
    """
    found: dict[str, float] = {}
    for key, value in row.items():
        if counter := counter_of(key):
            step = parse_number(value) if isinstance(value, str) else as_number(value)
            if step is not None and not isnan(step):
                found.setdefault(counter, step)
    return {name: found[name] for name in STEP_NAMES if name in found}


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


def parse_object(text: str, list_key: str = "") -> dict[str, Any] | None:
    """The leaves of a JSON object by their path; None where the text is something else.

    Args:
        list_key: of an object with the objects of a list, where the text is one. Empty: it is
            something else.
    """
    try:
        value = json.loads(text.removeprefix("\ufeff"))
        if list_key and isinstance(value, list):
            return {list_key: [flatten(row) for row in value if isinstance(row, dict)]}
        return flatten(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


LINES, LIMIT_S = 1000, 5.0  # a pattern may take exponential time


@dataclass(kw_only=True)
class OutputLog(LineLog):
    """A job's output. A value without a step has the count of the metric's values as its step.

    Attributes:
        printing: how many processes of the job print into it.
        words: what was found of a metric after its last number and is none.
        without_step: how many values of a metric had no step.
    """

    kind: Kind = Kind.OUTPUT
    patterns: list[MetricPattern]
    printing: int = 1
    words: dict[str, str] = field(default_factory=dict)
    without_step: Counter[str] = field(default_factory=Counter)

    def begin_attempt(self) -> None:
        self.without_step.clear()
        super().begin_attempt()

    def update(self, ended: bool) -> None:
        """Search the new lines, until the pattern takes too long once."""
        lines = ((self.reader.offset, line) for line in self.reader.new_lines(ended))
        while "pattern" not in self.faults and (some := list(islice(lines, LINES))):
            try:
                self._search(some, time.monotonic() + LIMIT_S)
            except TimeoutError:
                self.faults["pattern"] = (
                    f"a metric pattern takes more than {LIMIT_S:g} s for {LINES} lines: use a "
                    "simpler one"
                )
        self.faults.pop("words", None)
        if words := {name: text for name, text in self.words.items() if self.points.get(name)}:
            self.faults["words"] = (
                f"what stands last for {first_few(sorted(words), NAMED)} is no number "
                f"('{min(words.values())[:40]}'): the value before it is the final one"
            )
        self._note_processes()

    def _note_processes(self) -> None:
        """Name metrics of which each process may have printed a value."""
        self.faults.pop("processes", None)
        counts = self.without_step.items()
        names = sorted(name for name, count in counts if count % self.printing == 0)
        if self.printing > 1 and names:
            self.faults["processes"] = (
                f"{first_few(names, NAMED)} may have a value of each of the {self.printing} "
                "processes, and what came last counts: print it from rank 0 alone, or use a "
                "pattern with a group step"
            )

    def _search(self, lines: list[tuple[int, str]], deadline: float) -> None:
        """Raises `TimeoutError` at the deadline, a time of `time.monotonic`."""
        for (end, line), pattern in product(lines, self.patterns):
            is_earlier = self.is_earlier(end)
            for name, step, value in pattern.find(line, deadline - time.monotonic()):
                if isinstance(value, str):
                    if is_odd(value):
                        self.leave_out_before(name, value)
                    elif not NO_LABEL.fullmatch(value):
                        self.words[name] = value
                    continue
                if step is None and is_earlier:
                    continue
                self.words.pop(name, None)
                counted = len(self.points.get(name, ())) + 1
                if step is None:
                    self.without_step[name] += 1
                self.add(name, counted if step is None else step, value)
