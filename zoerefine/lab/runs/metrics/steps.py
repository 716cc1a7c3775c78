"""The steps of metrics: which columns count them, rows without one, and rows of several parts."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

# Values by step. A step that was logged twice, as after a resume, has its last value.
Points = dict[float, float]

# Columns and keys that count steps, the preferred one first. None of them is a metric.
STEP_NAMES = ("step", "global_step", "total_timesteps", "current_steps", "num_updates", "iteration",
              "iter", "training_iteration", "episode", "round", "epoch")  # fmt: skip
# Of these a step may begin again in each one, the finest first.
COARSE = ("episode", "round", "epoch")
BELOW_A_GROUP = ("global_step", "total_timesteps")  # also as train/global_step
ODD_NUMBER = re.compile(r"[-+]?[.,]?\d")  # what begins like a number
WRAPPED = re.compile(r"(\w+(\.\w+)*)?[(\[]\s*[-+]?[.,]?\d")  # tensor(0.5), [0.5]
NOT_FINITE = re.compile(r"(?i)nan|[-+]?inf(inity)?")
# Columns and keys that say which part of a training a row is of, also by whole numbers, and where
# one part follows another.
PARTS = ("fold", "cv", "seed", "random_state", "rank", "worker", "client", "trial", "run", "repeat",
         "repetition", "experiment", "exp", "phase", "split", "mode", "stage", "set", "subset",
         "partition", "dataset", "dataloader", "loader", "domain", "task", "type", "model",
         "method", "variant", "class", "label", "metric", "variable")  # fmt: skip
# So do numbers in these: `cv_fold`, `class_id`, `id`; `params.lr`. Not in `acc_task`, `mean_rank`.
NUMBERED = re.compile(
    rf"((cv|k|random|rng|data|global|local)[\W_]*)?({'|'.join(PARTS)})(e?s)?[\W_]*"
    r"(id|idx|index|no|nr|number|name)?\W*|(.*[\W_])?id"
)
SETTING = re.compile(r"(h(yper)?)?(param(eter)?s?|config|cfg|k?w?args)\..*")
# And every word, but in columns of what may vary over steps: times, speeds, marks of an epoch.
VARYING = re.compile(
    r"""(?x) (.*[\W_])? (date(time)?|day|time(stamp)?|start(ed)?|end(ed)?|took|elapsed|duration|eta
    |(is_|new_)?best|improved|saved|done|early_stop|stopped|converged|is_finite|nan|found_inf
    |overflow|skipped|notes?|comments?|status|state|message|msg|info|text) \W*"""
)
NO_LABEL = re.compile(r"(?i)-*|#?n/?a|<na>|\?|none|null")
# These may differ after a resume.
MACHINE = re.compile(
    r"(.*[\W_])?(host|node|gpu|cuda|device|machine|server|job|pid|user|commit|git|version)"
    r"(name|id|s)?([\W_].*)?"
)
# And these after a new start of the job.
OF_A_START = re.compile(r"(?i)\s*(run|trial|attempt|experiment|session)[\W_]*(id|name|tag)?\s*")

# Say which part of the training a row is of: `train`, `val`. The first part of its metrics' names.
TELLING = 3  # unlike values that are no whole numbers: they do not come twice by chance
PHASES = ("phase", "split", "mode")
USUAL_PHASE = re.compile(r"(?i)(train|val|valid|test|eval|dev)(ing|idation|uation|elopment)?")


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


@dataclass
class CountedMetric:
    """What the rows of a table say of a metric beside its values.

    Attributes:
        counter: the column that counts its steps: that of its first row with one.
        by_step, by_coarse: its values by the counter, and by a coarser step (such as the epoch)
            where rows state one.
        restarts: the steps begin again in every coarser one, which is the step then.
        is_outer: it is the other way round, as with the epochs of every round.
        parts: the part of the training and the value of each step and coarser step.
        is_mixed: its rows are of several parts, or some lack the step. It is not read.
        turns: what its rows name, in this order, by column.
        loose: the values of rows without its counter.
    """

    counter: str = ""
    by_step: Points = field(default_factory=dict)
    by_coarse: Points = field(default_factory=dict)
    restarts: bool = False
    is_outer: bool = False
    parts: dict[tuple[float, float | None], tuple[dict[str, str], float]] = field(
        default_factory=dict
    )
    is_mixed: bool = False
    turns: dict[str, dict[str, None]] = field(default_factory=dict)
    loose: set[float] = field(default_factory=set)

    def begin_attempt(self) -> None:
        """The job was started again: what names a start may have another value from here on."""
        self.loose.clear()
        self.turns.clear()
        for part, _ in self.parts.values():
            for column in filter(OF_A_START.fullmatch, [*part]):
                del part[column]

    def changed(self, part: Mapping[str, str]) -> Mapping[str, str]:
        """What stood in a column before it changed to another part; empty where none did.

        A second stage of the training may follow a first one.
        """
        for key, label in part.items():
            before, word = self.turns.setdefault(key, {}), key.strip().lower()
            last, is_new = next(reversed(before), label), label not in before
            before.setdefault(label)
            if (
                last != label
                and not (is_new and word in ("phase", "stage"))
                and NUMBERED.fullmatch(word)
            ):
                return {key: last}
        return {}

    def add(self, step: float, coarse: float | None, value: float, begins: bool) -> bool:
        """Record a value by its steps, and decide which of them begins again in the other.

        Args, returns: as of `record`.
        """
        step_before = next(reversed(self.by_step), -math.inf)
        goes_back = record(self.by_step, step, value, begins)
        if coarse is None:
            return goes_back
        before = next(reversed(self.by_coarse), coarse)
        is_earlier = (coarse, step) < (before, step_before) and not begins
        self.is_outer = self.is_outer or (is_earlier and step > step_before)
        begins_again = coarse > before and step <= step_before
        self.restarts = (self.restarts or begins_again) and not self.is_outer
        record(self.by_coarse, coarse, value, begins)
        is_other = (coarse, step) == (before, step_before) and goes_back
        return is_earlier or is_other if self.restarts else goes_back

    @property
    def points(self) -> Points:
        """Its values by what is the step."""
        return self.by_coarse if self.restarts else self.by_step

    def coarse_step(self, counters: Mapping[str, float]) -> float | None:
        """The step in which that of its counter may begin again; None where the row has none."""
        for key in COARSE if len(counters) > 1 else ():
            if key in counters and key != self.counter:
                return counters[key]
        return None

    def apart(
        self, name: str, step: float, coarse: float | None, value: float, part: dict[str, str]
    ) -> tuple[str, Mapping[str, str], Mapping[str, str]] | None:
        """Where a row is of another part than one before, and how; None where it is not."""
        before, known = self.parts.setdefault((step, coarse), (part, value))
        own = name.rpartition(".")[2]  # a number in a column of parts is a metric, too
        both = {key: before[key] for key in part if key in before and key != own}
        if any(part[key] != both[key] for key in both) and not same_number(known, value):
            return f"of step {step:g}", both, {key: part[key] for key in both}
        if other := self.changed(part):
            return f"up to step {step:g}", other, {key: part[key] for key in other}
        return None

    def add_loose(self, value: float) -> None:
        """Record the value of a row without a step. Two are as many as any number of them."""
        if self.counter or len(self.loose) < 2:
            self.loose.add(value)


def settle_rows_without_steps(
    points: dict[str, Points], counted: Mapping[str, CountedMetric], ended: bool
) -> list[str]:
    """Such a row states the final value of its metric, if no others state its steps.

    Args:
        points: values by metric and step; what is decided is changed in them.
        counted: what rows say of each metric.
        ended: nothing more will be written.

    Returns the metrics that are not read, since some of their rows state a step and others none.
    """
    last = max((max(values) for values in points.values() if values), default=1.0)
    may_end = ended and not without_steps(counted)
    for name, one in counted.items():
        values = points.get(name, {})
        if values and one.loose.difference(values.values()):
            one.is_mixed = bool(points.pop(name))
        elif may_end and len(one.loose) == 1 and not one.is_mixed:
            points.setdefault(name, {last: next(iter(one.loose))})
    found = {name for name, one in counted.items() if one.is_mixed and one.loose}
    return sorted(name for name in found if not VARYING.fullmatch(name))


def without_steps(counted: Mapping[str, CountedMetric]) -> set[str]:
    """Metrics that are not read since several rows without a step state them."""
    return {name for name, one in counted.items() if not one.counter and len(one.loose) > 1}


def phase_of(texts: Iterable[str]) -> str:
    """The phase of a row by what its columns of phases say; empty where they say nothing.

    `train` and the like come before other words, such as `warmup`.
    """
    found = [*filter(None, texts)]
    return next(filter(USUAL_PHASE.fullmatch, found), found[0] if found else "")


def part_of(row: Mapping[str, Any], phase: str) -> dict[str, str]:
    """The columns of a row that say which part of a training, or which thing, it is about.

    Args:
        phase: what stands before the names of the row's metrics, and so tells them apart.
    """
    found = {}
    for name, value in row.items():
        word = name.strip().lower()
        if isinstance(value, str | int | float) and not MACHINE.fullmatch(word):
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
    word = name.strip().lower().removeprefix("_")  # W&B's _step
    leaf = word.rpartition("/")[2]
    return word if word in STEP_NAMES else leaf if leaf in BELOW_A_GROUP else ""


def record(points: Points, step: float, value: float, begins: bool) -> bool:
    """Add a value behind all others.

    Args:
        begins: it is the first one of a later attempt.

    Returns whether one attempt goes back to this step, or has another value of it.
    """
    if begins:
        discard_after(points, step)
    before = points.pop(step, None)
    last = next(reversed(points), -math.inf)
    points[step] = value
    is_other = step < last if before is None else not same_number(before, value)
    return is_other and not begins


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


def is_odd(text: str) -> bool:
    """Whether a text that is no number may stand for one: 12%, 0,5, tensor(0.5)."""
    return bool(ODD_NUMBER.match(text) or WRAPPED.match(text))


def same_number(one: float, other: float) -> bool:
    """Whether two numbers are equal, or both NaN."""
    return one == other or (math.isnan(one) and math.isnan(other))


def is_telling(values: Iterable[float]) -> bool:
    """Whether values are such that another seed would not give the same ones by chance."""
    return len({one for one in values if math.isfinite(one) and one != round(one)}) >= TELLING


def parse_number(text: str) -> float | None:
    """A text as a float, infinite ones as NaN; None if it is not a number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else math.nan
