"""What the metrics of a run are, and what every kind of log that holds them has in common."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from zoerefine.base.errors import first_few

# Values by step. A step that was logged twice, as after a resume, has its last value.
Points = dict[float, float]

NAMED = 3  # metrics in a message
# Columns and keys that say which part of a training a row is of, also by a number. In a table
# without steps `TABLES` do so by a word, and `REPEATS` by a number, too.
REPEATS = ("fold", "seed")
TABLES = (*REPEATS, "dataset", "class", "category", "model", "method", "metric")
PARTS = (*TABLES, *("phase", "split", "mode", "rank", "worker", "trial", "run", "subset", "task"),
         *("scene", "sequence", "subject", "type", "stage", "event", "set", "partition", "client"),
         *("env", "dataloader_idx", "name", "key", "tag"))  # fmt: skip
PART_TYPES = (str, int, float)
NO_VALUE = {"", "-", "n/a", "N/A", "NA", "None", "null"}
FLAGS = {"True", "False", "true", "false"}
# In the first column: a number, a time, what counts (`epoch_1`); not `fold_1`, `cifar10`.
COUNTED = re.compile(r"[-+]?[.,]?\d|.*(epoch|step|iter|ckpt|checkpoint|\d:\d)", re.IGNORECASE)
NUMBERED = "a number"  # such a cell, in messages

# Columns and keys that count steps, the preferred one first. None of them is a metric.
EPOCH = "epoch"
STEP_NAMES = ("step", "global_step", "iteration", "iter", EPOCH)
# Say which part of the training a row is of: `train`, `val`. The first part of its metrics' names.
PHASES = ("phase", "split", "mode")
ODD_NUMBER = re.compile(r"[-+]?[.,]?\d")  # what begins like a number
MAX_BYTES = 64 * 2**20  # a larger text is data, not a log


@dataclass(frozen=True)
class Series:
    """A metric over the steps of a run.

    Attributes:
        steps: in ascending order.
        values: one for each step; finite or NaN (an infinite value is read as NaN).
    """

    steps: list[float]
    values: list[float]


@dataclass(frozen=True)
class RunMetrics:
    """Everything that a run measured.

    Attributes:
        source: the files in which the metrics were found; empty where there are none.
        series: metrics over steps, by name.
        final: the final value of each metric: from results.json, or else the value of its last
            step.
        hyperparameters: by name, where the script logged them for TensorBoard.
        faults: what could not be read, one sentence each.
    """

    source: str
    series: dict[str, Series]
    final: dict[str, float]
    hyperparameters: dict[str, Any]
    faults: tuple[str, ...] = ()


class Kind(Enum):
    """Kinds of logs in the order in which they are asked for a metric."""

    ROWS = "metrics.jsonl"
    EVENTS = "TensorBoard's event files"
    STORES = "the store of another tracker"
    TABLE = "a CSV file that counts steps"
    OUTPUT = "the job's output"
    DOCUMENT = "a JSON document of final values"
    LOOSE_TABLE = "a CSV file that counts no steps"


@dataclass
class CountedMetric:
    """What rows that may state an epoch or a part of the training say of a metric.

    Attributes:
        by_epoch: the values of rows that state an epoch beside their step.
        last: step and epoch of the last such row.
        restarts: the steps begin again in every epoch: the epoch is the step.
        parts: the part of the training and the value of each step and epoch.
        is_mixed: it has several parts at one step, so it is not read.
    """

    by_epoch: Points = field(default_factory=dict)
    last: tuple[float, float] = (-math.inf, math.inf)
    restarts: bool = False
    parts: dict[tuple[float, float | None], tuple[Mapping[str, str], float]] = field(
        default_factory=dict
    )
    is_mixed: bool = False


@dataclass
class MetricLog:
    """A file (or folder of event files) with metrics, read as far as it is written.

    Attributes:
        path: the file or folder.
        place: its path inside the run or the workspace, which tells logs with equal metric names
            apart.
        points: values by metric and step.
        finals: final values that the log states itself; the others are those of the last step.
        hyperparameters: by name.
        faults: what could not be read, by the place of the fault.
        counted: what rows say of a metric beside its values, by metric.
        earlier: metrics of which only an earlier attempt of the job has logged values so far.
    """

    path: Path
    place: str
    points: dict[str, Points] = field(default_factory=dict)
    counted: dict[str, CountedMetric] = field(default_factory=lambda: defaultdict(CountedMetric))
    earlier: set[str] = field(default_factory=set)
    finals: dict[str, float] = field(default_factory=dict)
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """What kind of log this is."""
        raise NotImplementedError

    def update(self, ended: bool) -> None:
        """Read what was written since the last call.

        Args:
            ended: nothing more will be written, so a last line without its end is complete.
        """
        raise NotImplementedError

    def add(self, name: str, step: float, value: float) -> None:
        """Record one value."""
        self.points_from(name, step)[step] = value

    def points_from(self, name: str, step: float) -> Points:
        """The points to which values are added that begin at a step."""
        points = self.points.setdefault(name, {})
        if name in self.earlier:
            self.earlier.remove(name)
            discard_after(points, step)
        return points

    def add_counted(
        self,
        name: str,
        step: float,
        epoch: float | None,
        value: float,
        part: Mapping[str, str],
        has_step: bool,
    ) -> None:
        """Record one value of a row that may also state its epoch, and its part of the training.

        Args:
            part: of `part_of`. Values of several parts at one step are no series.
            has_step: the step is stated, not counted.
        """
        epoch = None if epoch is None or math.isnan(epoch) else epoch
        one = self.counted[name]
        at = (step if has_step else math.inf, epoch)
        if one.is_mixed or (part and self._is_mixed(name, at, value, part)):
            return
        if epoch is not None:
            one.by_epoch[epoch] = value
            if name in self.earlier:
                discard_after(one.by_epoch, epoch)
            one.restarts = one.restarts or (epoch > one.last[1] and step <= one.last[0])
            one.last = step, epoch
            if one.restarts:
                self.points[name], step = one.by_epoch, epoch
        self.add(name, step, value)

    def begin_attempt(self) -> None:
        """The job was started again: what follows replaces values of the same and later steps."""
        self.earlier = set(self.points)

    def forget(self) -> None:
        """Before a file is read anew."""
        self.points, self.earlier, self.faults = {}, set(), {}
        self.counted.clear()

    def _is_mixed(
        self, name: str, at: tuple[float, float | None], value: float, part: Mapping[str, str]
    ) -> bool:
        """Whether a metric has another value in another part at a step; if so, it is left out."""
        before, known = self.counted[name].parts.setdefault(at, (part, value))
        differ = [key for key in part if before.get(key, part[key]) != part[key]]
        if not differ or same_number(known, value):
            return False
        for one in (name, *differ):
            self.points.pop(one, None)
            self.counted[one] = CountedMetric(is_mixed=True)
        mixed = sorted(k for k, v in self.counted.items() if v.is_mixed and k not in differ)
        step = "without a step" if at[0] == math.inf else f"of step {at[0]:g}"
        self.faults["parts"] = (
            f"rows {step} differ in {differ[0] or 'the first column'} ({before[differ[0]]}, "
            f"{part[differ[0]]}), so {first_few(mixed, NAMED)} "
            f"{'is' if len(mixed) == 1 else 'are'} not read: "
            "write a file for each part, its name in a column split, or the step of each row"
        )
        return True


def part_of(row: Mapping[str, Any], phase: str, has_step: bool) -> dict[str, str]:
    """The columns of a row that say which part of a training it is of: its fold, its split.

    Without a step that is the first column, too, where words stand in it: folds, statistics
    (`mean`).

    Args:
        phase: what stands before the names of the row's metrics, and so tells them apart.
    """
    found = {}
    index = None if has_step else next(iter(row), None)
    for name, value in row.items():
        part = _part_of_name(name)
        if not (name == index or (part if has_step else part in TABLES)):
            continue
        text = str(value).strip() if isinstance(value, PART_TYPES) else ""
        if name == index and not part:
            text = "" if text in FLAGS | NO_VALUE else NUMBERED if COUNTED.match(text) else text
        elif not (has_step or name == index or part in REPEATS) and parse_number(text) is not None:
            text = ""  # a metric, such as the loss of classes
        # A number with decimals is a metric of that name.
        if text not in ("", phase) and not (parse_number(text) or 0) % 1:
            found[name] = text
    return found


@cache  # every row of a log has the same names
def _part_of_name(name: str) -> str:
    return word if (word := name.strip().lower()) in PARTS else ""


def discard_after(points: Points, step: float) -> None:
    """What an earlier attempt of a job logged after a step from which a later one goes on."""
    for later in [one for one in points if one > step]:
        del points[later]


def as_series(points: Mapping[float, float]) -> Series:
    """Points in the order of their steps."""
    steps = sorted(points)
    return Series(steps, [points[step] for step in steps])


def as_number(value: Any) -> float | None:
    """A JSON value as a float, infinite ones as NaN; None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond any float
        return math.nan
    return number if math.isfinite(number) else math.nan


def same_number(one: float, other: float) -> bool:
    """Whether two numbers are equal, or both NaN."""
    return one == other or (math.isnan(one) and math.isnan(other))


def parse_number(text: str) -> float | None:
    """A text as a float, infinite ones as NaN; None if it is not a number."""
    try:
        return as_number(float(text))
    except ValueError:
        return None
