"""What every kind of log that holds metrics has in common."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from zoerefine.base.messages import first_few
from zoerefine.lab.runs.metrics.steps import (
    CountedMetric,
    Points,
    record,
    settle_rows_without_steps,
)

NAMED = 3  # metrics or logs in a message
MAX_BYTES = 64 * 2**20  # a larger text is data, not a log


class Kind(Enum):
    """Kinds of logs in the order in which they are asked for a metric."""

    ROWS = "metrics.jsonl"
    EVENTS = "TensorBoard's event files"
    STORES = "the store of another tracker"
    TABLE = "a table whose rows state their steps"
    OUTPUT = "the job's output"
    DOCUMENT = "final values"


@dataclass
class MetricLog:
    """A file (or folder of event files) with metrics, read as far as it is written.

    Attributes:
        path: the file or folder.
        place: its path inside the run or the workspace, which tells logs with equal metric names
            apart.
        kind: a table or JSON whose rows state no step so far holds final values.
        since: where in the file the job's last start is, in bytes. What stands before counts up to
            the first step that has come again: see `begin_attempt`.
        skipped: how many bytes at its beginning are the commit's.
        points: values by metric and step.
        finals: final values that the log states itself; the others are those of the last step.
        reported: final values that another file states of its metrics.
        repeated: metrics that it reports of another log.
        ends_empty: its last row states a step and no value.
        again: the first step to which one attempt goes back, or of which it logs two values, by
            metric.
        hyperparameters: by name.
        faults: what could not be read, by the place of the fault.
        counted: what rows say of a metric beside its values, by metric.
        may_be_data: it has no column of steps. What cannot be read matters only without a log.
        earlier: metrics of which only an earlier attempt of the job has logged values so far.
        stamp: what tells the file from what it was before.
    """

    path: Path
    place: str
    kind: Kind = Kind.DOCUMENT
    since: int = 0
    skipped: int = 0
    points: dict[str, Points] = field(default_factory=dict)
    counted: dict[str, CountedMetric] = field(default_factory=lambda: defaultdict(CountedMetric))
    may_be_data: bool = False
    earlier: set[str] = field(default_factory=set)
    finals: dict[str, float] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)
    repeated: set[str] = field(default_factory=set)
    ends_empty: bool = False
    again: dict[str, float] = field(default_factory=dict)
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    stamp: tuple[int, ...] = ()

    def update(self, ended: bool) -> None:
        """Read what was written since the last call.

        Args:
            ended: nothing more will be written, so a last line without its end is complete.
        """
        raise NotImplementedError

    def has_changed(self, *facts: int) -> bool:
        """Whether the file, or a fact about it, is another one than at the last call."""
        before, status = self.stamp, self.path.stat()
        self.stamp = (status.st_size, status.st_mtime_ns, status.st_ino, *facts)
        return self.stamp != before

    def add(self, name: str, step: float, value: float) -> None:
        """Record one value."""
        if record(self.points.setdefault(name, {}), step, value, name in self.earlier):
            self.again.setdefault(name, step)
        self.earlier.discard(name)

    def add_counted(
        self, name: str, counters: Mapping[str, float], value: float, part: dict[str, str]
    ) -> None:
        """Record one value of a table's row.

        Args:
            counters: the steps that the row states, by the column, the preferred one first.
            part: of `part_of`. Values of several parts at one step are no series.
        """
        if counters and self.kind is Kind.DOCUMENT:
            self.kind = Kind.TABLE
        one = self.counted[name]
        one.counter = one.counter or next(iter(counters), "")
        step, coarse = counters.get(one.counter), one.coarse_step(counters)
        if one.is_mixed:
            return
        if step is None or (one.restarts and coarse is None):
            return one.add_loose(value)
        if part and (where := one.apart(name, step, coarse, value, part)):
            return self._leave_out(name, *where)
        if one.add(step, coarse, value, name in self.earlier):
            self.again.setdefault(name, next(reversed(one.points)))
        self.earlier.discard(name)
        self.points[name] = one.points

    def is_before(self, time_s: float) -> bool:
        """Whether its file, or every file of its folder, was written before a time."""
        if not time_s:
            return False
        files = [self.path] if self.path.is_file() else filter(Path.is_file, self.path.iterdir())
        try:
            return all(one.lstat().st_mtime < time_s for one in files)
        except OSError:  # moved into the run at this moment
            return False

    def settle(self, ended: bool) -> None:
        """Decide about rows without a step, and say what is not read."""
        if self.skipped and self.points:
            self.faults["commit"] = (
                f"its first {self.skipped} bytes are those of the commit, and are not read: if the "
                "job has written them, too, remove the file from the commit"
            )
        mixed = settle_rows_without_steps(self.points, self.counted, ended)
        if self.ends_empty and ended and self.points:
            self.faults["end"] = (
                "the last row states no value: one before it is the final one, also where a NaN "
                "was written as an empty cell or null"
            )
        if mixed:
            self.faults["steps"] = (
                f"some rows state a step and others none, so {first_few(mixed, NAMED)} "
                f"{'is' if len(mixed) == 1 else 'are'} not read: write the step of each row"
            )

    def begin_attempt(self) -> None:
        """The job was started again: what follows replaces values of the same and later steps."""
        self.earlier = set(self.points)
        for one in self.counted.values():
            one.begin_attempt()

    def forget(self) -> None:
        """Before a file is read anew."""
        self.earlier, self.faults, self.again = set(), {}, {}
        self.discard()

    def discard(self) -> None:
        """Leave out everything that was read."""
        self.points = {}
        self.counted.clear()

    def discard_metric(self, name: str) -> bool:
        """Leave out what was read of a metric; whether there was something."""
        self.counted.pop(name, None)
        return bool(self.points.pop(name, None))

    def _leave_out(
        self, name: str, where: str, before: Mapping[str, str], part: Mapping[str, str]
    ) -> None:
        """Rows of a metric are of several parts: it is no series, and neither are their columns."""
        differ = [key for key in {**before, **part} if before.get(key) != part.get(key)]
        for one in (name, *differ):
            self.points.pop(one, None)
            self.counted[one] = CountedMetric(is_mixed=True)
        names = {name for name, one in self.counted.items() if one.is_mixed}
        mixed = sorted(names.difference(differ) or differ)
        shown = (one.get(differ[0], "a number or nothing")[:40] for one in (before, part))
        self.faults["parts"] = (
            f"rows {where} differ in {differ[0] or 'the first column'} ({', '.join(shown)}), so "
            f"{first_few(mixed, NAMED)} {'is' if len(mixed) == 1 else 'are'} not read: "
            "write a file for each part, or its name in a column split"
        )
