"""What the metrics of a run are: values over steps, and final values."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Values by step. A step that was logged twice, as after a resume, has its last value.
Points = dict[float, float]


# Columns and keys that count steps, the preferred one first. None of them is a metric.
STEP_NAMES = ("step", "global_step", "total_timesteps", "current_steps", "num_updates", "iteration",
              "iter", "training_iteration", "episode", "round", "epoch")  # fmt: skip
ODD_NUMBER = re.compile(r"[-+]?[.,]?\d")  # what begins like a number
WRAPPED = re.compile(r"(\w+(\.\w+)*)?[(\[]\s*[-+]?[.,]?\d")  # tensor(0.5), [0.5]
NOT_FINITE = re.compile(r"(?i)nan|[-+]?inf(inity)?")


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


def parse_number(text: str) -> float | None:
    """A text as a float, infinite ones as NaN; None if it is not a number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else math.nan
