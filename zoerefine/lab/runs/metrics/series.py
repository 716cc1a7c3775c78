"""What the metrics of a run are, and what every kind of log that holds them has in common."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from zoerefine.base.errors import first_few

# Values by step. A step that was logged twice, as after a resume, has its last value.
Points = dict[float, float]

NAMED = 3  # metrics in a message
# Columns and keys that say which part of a training a row is of, also by whole numbers.
PARTS = {*("fold", "seed", "dataset", "class", "category", "model", "method", "metric", "phase"),
         *("split", "mode", "rank", "worker", "trial", "run", "subset", "task", "scene", "subject"),
         *("sequence", "type", "stage", "event", "set", "partition", "client", "env", "name"),
         *("dataloader", "key", "tag", "label", "repeat", "repetition", "experiment", "domain"),
         *("image", "video", "patient", "subject", "random_state", "cv", "exp")}  # fmt: skip
# So do numbers in these: `cv_fold`, `class_id`, `id`; `params.lr`. Not in `acc_task`, `mean_rank`.
NUMBERED = re.compile(
    rf"((cv|k|random|rng|data|global|local)[\W_]*)?({'|'.join(PARTS)})(e?s)?[\W_]*"
    r"(id|idx|index|no|nr|number)?\W*|(.*[\W_])?id"
)
SETTING = re.compile(
    r"((h(yper)?)?(p|param(eter)?s?)|config|cfg|k?w?args)[\W_]"
    r"(?!.*(norm|count|total|mean|max|pruned|grad)).*|rank_test_.*|((iou|conf)_)?thr(esholds?)?"
)
# And every word, but in columns of what may vary over steps: times, speeds, marks of an epoch.
VARYING = re.compile(
    r"""(?x) (.*[\W_])? (date(time)?|day|time(stamp)?|start(ed)?|end(ed)?|took|elapsed|duration|eta
    |(is_|new_)?best|improved|saved|done|early_stop|stopped|converged|is_finite|nan|found_inf
    |overflow|skipped|notes?|comments?|status|state|message|msg|info|text) \W*"""
)
NO_LABEL = re.compile(r"(?i)-*|#?n/?a|<na>|\?|none|null")
# These may differ after a resume.
MACHINE = re.compile(r"host|node|gpu|cuda|device|machine|server|job|pid|user|commit|git|version")

# Columns and keys that count steps, the preferred one first. None of them is a metric.
STEP_NAMES = ("step", "global_step", "total_timesteps", "current_steps", "num_updates", "iteration",
              "iter", "training_iteration", "episode", "round", "epoch")  # fmt: skip
# Of these a step may begin again in each one, the finest first.
COARSE = ("episode", "round", "epoch")
BELOW_A_GROUP = ("global_step", "total_timesteps")  # also as train/global_step
# Say which part of the training a row is of: `train`, `val`. The first part of its metrics' names.
PHASES = ("phase", "split", "mode")
ODD_NUMBER = re.compile(r"[-+]?[.,]?\d")  # what begins like a number
NOT_FINITE = re.compile(r"(?i)nan|[-+]?inf(inity)?")
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
    TABLE = "a table whose rows state their steps"
    OUTPUT = "the job's output"
    DOCUMENT = "final values"


@dataclass
class CountedMetric:
    """What the rows of a table say of a metric beside its values.

    Attributes:
        counter: the column that counts its steps: that of its first row with one.
        last: step and coarser step (such as the epoch) of its last row.
        by_coarse: the values of rows that state a coarser step, too.
        restarts: the steps begin again in every coarser one, which is the step then.
        parts: the part of the training and the value of each step and coarser step.
        is_mixed: its rows are of several parts, or some lack the step. It is not read.
        turns: what its rows name, in this order, by column.
        rows: how many of them name a part.
        loose: the values of rows without its counter.
    """

    counter: str = ""
    last: tuple[float, float] = (-math.inf, math.inf)
    by_coarse: Points = field(default_factory=dict)
    restarts: bool = False
    parts: dict[tuple[float, float | None], tuple[Mapping[str, str], float]] = field(
        default_factory=dict
    )
    is_mixed: bool = False
    turns: dict[str, dict[str, None]] = field(default_factory=dict)
    rows: int = 0
    loose: set[float] = field(default_factory=set)

    def come_again(self, part: Mapping[str, str]) -> Mapping[str, str]:
        """What stood between two turns of a part: of `train`, `val`, `train` it is `val`.

        Or what stood before, where each of three rows or more is of another part. A part that
        follows another one once, such as a second stage, is of the same series.
        """
        self.rows += 1
        for key, label in part.items():
            before = self.turns.setdefault(key, {})
            last = next(reversed(before), label)
            comes_again = last != label and label in before
            before.setdefault(label)
            is_apart = comes_again or 3 <= len(before) == self.rows
            if is_apart and NUMBERED.fullmatch(key.strip().lower()):
                return {key: last}
        return {}

    def coarse_step(self, counters: Mapping[str, float]) -> float | None:
        """The step in which that of its counter may begin again; None where the row has none."""
        for key in COARSE if len(counters) > 1 else ():
            if key in counters and key != self.counter:
                return counters[key]
        return None

    def apart(
        self, name: str, step: float, coarse: float | None, value: float, part: Mapping[str, str]
    ) -> tuple[str, Mapping[str, str], Mapping[str, str]] | None:
        """Where a row is of another part than one before, and how; None where it is not."""
        before, known = self.parts.setdefault((step, coarse), (part, value))
        own = name.rpartition(".")[2]  # a number in a column of parts is a metric, too
        both = {key: before[key] for key in part if key in before and key != own}
        if any(part[key] != both[key] for key in both) and not same_number(known, value):
            return f"of step {step:g}", both, {key: part[key] for key in both}
        if other := self.come_again(part):
            return "in turns", other, {key: part[key] for key in other}
        return None

    def add_loose(self, value: float) -> None:
        """Record the value of a row without a step. Two are as many as any number of them."""
        if self.counter or len(self.loose) < 2:
            self.loose.add(value)


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
        goes_back: the step to which the rows of a metric went back with another value, by metric.
        earlier: metrics of which only an earlier attempt of the job has logged values so far.
        stamp: what tells the file from what it was before.
    """

    path: Path
    place: str
    points: dict[str, Points] = field(default_factory=dict)
    counted: dict[str, CountedMetric] = field(default_factory=lambda: defaultdict(CountedMetric))
    goes_back: dict[str, float] = field(default_factory=dict)
    earlier: set[str] = field(default_factory=set)
    finals: dict[str, float] = field(default_factory=dict)
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    stamp: tuple[int, ...] = ()

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

    def has_changed(self, *facts: int) -> bool:
        """Whether the file, or a fact about it, is another one than at the last call."""
        before, status = self.stamp, self.path.stat()
        self.stamp = (status.st_size, status.st_mtime_ns, status.st_ino, *facts)
        return self.stamp != before

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
        self, name: str, counters: Mapping[str, float], value: float, part: Mapping[str, str]
    ) -> None:
        """Record one value of a table's row.

        Args:
            counters: the steps that the row states, by the column, the preferred one first.
            part: of `part_of`. Values of several parts at one step are no series.
        """
        one = self.counted[name]
        one.counter = one.counter or next(iter(counters), "")
        step, coarse = counters.get(one.counter), one.coarse_step(counters)
        if one.is_mixed:
            return
        if step is None or (one.restarts and coarse is None):
            return one.add_loose(value)
        if part and (where := one.apart(name, step, coarse, value, part)):
            return self._leave_out(name, *where)
        if coarse is not None:
            one.by_coarse[coarse] = value
            if name in self.earlier:
                discard_after(one.by_coarse, coarse)
            one.restarts = one.restarts or (coarse > one.last[1] and step <= one.last[0])
        goes_back = step < one.last[0] and name not in self.earlier
        one.last = step, math.inf if coarse is None else coarse
        if one.restarts and coarse is not None:
            self.points[name], step, goes_back = one.by_coarse, coarse, False
        points = self.points_from(name, step)
        if goes_back and not same_number(points.get(step, value), value):
            self.goes_back.setdefault(name, step)
        points[step] = value

    def settle(self, ended: bool) -> None:
        """Decide about rows without a step: one states the final value of its metric, if no others
        state its steps."""
        last = max((max(points) for points in self.points.values() if points), default=1.0)
        may_end = ended and not self.without_steps()
        for name, one in self.counted.items():
            points = self.points.get(name, {})
            if points and one.loose.difference(points.values()):
                one.is_mixed = bool(self.points.pop(name))
            elif may_end and len(one.loose) == 1 and not one.is_mixed:
                self.points.setdefault(name, {last: next(iter(one.loose))})
        mixed = sorted(name for name, one in self.counted.items() if one.is_mixed and one.loose)
        if mixed:
            self.faults["steps"] = (
                f"some rows state a step and others none, so {first_few(mixed, NAMED)} "
                f"{'is' if len(mixed) == 1 else 'are'} not read: write the step of each row"
            )

    def without_steps(self) -> set[str]:
        """Metrics that are not read since several rows without a step state them."""
        return {
            name for name, one in self.counted.items() if not one.counter and len(one.loose) > 1
        }

    def begin_attempt(self) -> None:
        """The job was started again: what follows replaces values of the same and later steps."""
        self.earlier = set(self.points)
        for one in self.counted.values():
            one.loose.clear()

    def forget(self) -> None:
        """Before a file is read anew."""
        self.earlier, self.faults, self.goes_back = set(), {}, {}
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


def part_of(row: Mapping[str, Any], phase: str) -> dict[str, str]:
    """The columns of a row that say which part of a training, or which thing, it is about.

    Args:
        phase: what stands before the names of the row's metrics, and so tells them apart.
    """
    found = {}
    for name, value in row.items():
        word = name.strip().lower()
        if isinstance(value, str | int | float) and not MACHINE.search(word):
            label = label_of(word, str(value).strip())
            if label not in ("", phase):
                found[name] = label
    return found


@lru_cache(64)  # most rows repeat what they say
def label_of(column: str, text: str) -> str:
    """What a cell says of its row; empty where it says nothing, or what may vary over steps."""
    number = parse_number(text)
    if number is not None:  # one with decimals is a metric, such as the loss of classes
        is_part = SETTING.fullmatch(column) or (NUMBERED.fullmatch(column) and not number % 1)
        return f"{number:.15g}" if is_part else ""
    return "" if VARYING.fullmatch(column) or NO_LABEL.fullmatch(text) else text


@lru_cache(1024)
def counter_of(name: str) -> str:
    """What a column or key counts, one of `STEP_NAMES`; empty where it counts nothing."""
    word = name.strip().lower()
    leaf = word.rpartition("/")[2]
    return word if word in STEP_NAMES else leaf if leaf in BELOW_A_GROUP else ""


def discard_after(points: Points, step: float) -> None:
    """What an earlier attempt of a job logged after a step from which a later one goes on."""
    for later in [one for one in points if one > step]:
        del points[later]


def as_series(points: Mapping[float, float]) -> Series:
    """Points in the order of their steps."""
    steps = sorted(points)
    return Series(steps, [points[step] for step in steps])


def as_number(value: Any) -> float | None:
    """A JSON value as a float, infinite ones as NaN; None if it is not a number.

    JSON has no NaN, so some scripts write it as a text.
    """
    if isinstance(value, str) and NOT_FINITE.fullmatch(value):
        return math.nan
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
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else math.nan
