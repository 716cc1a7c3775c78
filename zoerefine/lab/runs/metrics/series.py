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
# Beside a step these may differ after a resume.
MACHINE = re.compile(r"host|node|gpu|cuda|device|machine|server|job|pid|user|commit|git|version")

# Columns and keys that count steps, the preferred one first. None of them is a metric.
EPOCH = "epoch"
STEP_NAMES = ("step", "global_step", "iteration", "iter", "episode", "round", EPOCH)
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
        alike: what every row without a step says of itself; None before the first one.
        is_guessed: its steps are counted from the only one that is stated so far.
        is_mixed: its rows of one step, or without steps, are of several parts. It is not read.
        turns: what its rows name, in this order, by column.
        rows: how many they are.
    """

    by_epoch: Points = field(default_factory=dict)
    last: tuple[float, float] = (-math.inf, math.inf)
    restarts: bool = False
    parts: dict[tuple[float, float | None], tuple[Mapping[str, str], float]] = field(
        default_factory=dict
    )
    alike: Mapping[str, str] | None = None
    is_guessed: bool = False
    is_mixed: bool = False
    turns: dict[str, dict[str, None]] = field(default_factory=dict)
    rows: int = 0

    def come_again(self, part: Mapping[str, str]) -> Mapping[str, str]:
        """What stood between two turns of a part: of `train`, `val`, `train` it is `val`.

        Or what stood before, where each of three rows or more is of another part. A part that
        follows another one once, such as a second stage, is of the same series.
        """
        self.rows += 1
        for key, label in part.items():
            before = self.turns.setdefault(key, {})
            last, is_part = next(reversed(before), label), NUMBERED.fullmatch(key.strip().lower())
            comes_again = last != label and label in before
            before.setdefault(label)
            if is_part and (comes_again or 3 <= len(before) == self.rows):
                return {key: last}
        return {}


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
        stamp: what tells the file from what it was before.
    """

    path: Path
    place: str
    points: dict[str, Points] = field(default_factory=dict)
    counted: dict[str, CountedMetric] = field(default_factory=lambda: defaultdict(CountedMetric))
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
            part: of `part_of`. Values of several parts at one step, or without one, are no series.
            has_step: the step is stated, not counted.
        """
        epoch = None if epoch is None or math.isnan(epoch) else epoch
        one = self.counted[name]
        if one.is_mixed:
            return
        if not has_step:
            one.alike = part if one.alike is None else one.alike
            if part != one.alike:
                return self._leave_out(name, "without a step", one.alike, part)
        elif part:
            before, known = one.parts.setdefault((step, epoch), (part, value))
            own = name.rpartition(".")[2]  # a number in a column of parts is a metric, too
            both = {key: before[key] for key in part if key in before and key != own}
            if any(part[key] != both[key] for key in both) and not same_number(known, value):
                return self._leave_out(name, f"of step {step:g}", both, {k: part[k] for k in both})
            if other := one.come_again(part):
                return self._leave_out(name, "in turns", other, {k: part[k] for k in other})
        if epoch is not None:
            one.by_epoch[epoch] = value
            if name in self.earlier:
                discard_after(one.by_epoch, epoch)
            one.restarts = one.restarts or (epoch > one.last[1] and step <= one.last[0])
            one.last = step, epoch
            if one.restarts:
                self.points[name], step = one.by_epoch, epoch
        points = self.points.get(name)
        if points is None or self.earlier:
            points = self.points_from(name, step)
        points[step] = value

    def begin_attempt(self) -> None:
        """The job was started again: what follows replaces values of the same and later steps."""
        self.earlier = set(self.points)

    def forget(self) -> None:
        """Before a file is read anew."""
        self.points, self.earlier, self.faults = {}, set(), {}
        self.counted.clear()

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
            "write a file for each part, its name in a column split, or the step of each row"
        )


def part_of(row: Mapping[str, Any], phase: str, has_step: bool) -> dict[str, str]:
    """The columns of a row that say which part of a training, or which thing, it is about.

    Args:
        phase: what stands before the names of the row's metrics, and so tells them apart.
    """
    found = {}
    for name, value in row.items():
        word = name.strip().lower()
        if isinstance(value, str | int | float) and not (has_step and MACHINE.search(word)):
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
