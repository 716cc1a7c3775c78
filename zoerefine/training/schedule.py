"""Learning rate schedules: pure functions of the step, so a resume needs no state.

A shape is a function of the share of the run that is done, and TRAIN.STEP_AT. To add one, write
the function and one row of `registries.SCHEDULES`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zoerefine.registries import SCHEDULES

Shape = Callable[[float, Sequence[float]], float]

ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1 / 250_000  # of the peak, as in torch's OneCycleLR
ONE_CYCLE_UP = 0.3  # share of the steps with a rising rate


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step of a run.

    Attributes:
        name: a name of `registries.SCHEDULES`.
        peak: the highest rate.
        steps: of the whole run.
        warmup: share of the steps with a linear rise first; `onecycle` ignores it.
        step_at: shares of the run at which `step` divides the rate by ten.
    """

    name: str
    peak: float
    steps: int
    warmup: float
    step_at: Sequence[float] = ()

    def rate(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        warmup = 0 if self.name == "onecycle" else max(1, round(self.warmup * self.steps))
        if step < warmup:
            return self.peak * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        if self.name == "step":  # TRAIN.STEP_AT counts the warm-up, too
            done = step / self.steps
        shape: Shape = SCHEDULES.load(self.name)
        return self.peak * shape(done, self.step_at)


@dataclass(frozen=True)
class GeometricSchedule:
    """A learning rate that is multiplied by the same factor at every step."""

    low: float
    high: float
    steps: int

    def rate(self, step: int) -> float:
        return float(self.low * (self.high / self.low) ** (step / max(1, self.steps - 1)))


def cosine(done: float, step_at: Sequence[float]) -> float:
    """Half a cosine down to zero (Loshchilov and Hutter 2017)."""
    return (1 + math.cos(math.pi * done)) / 2


def one_cycle(done: float, step_at: Sequence[float]) -> float:
    """Half a cosine up, half a cosine down (Smith and Topin 2018)."""
    if done < ONE_CYCLE_UP:
        start, end, share = ONE_CYCLE_START, 1.0, done / ONE_CYCLE_UP
    else:
        start, end, share = 1.0, ONE_CYCLE_END, (done - ONE_CYCLE_UP) / (1 - ONE_CYCLE_UP)
    return end + (start - end) * cosine(share, ())


def steps_down(done: float, step_at: Sequence[float]) -> float:
    """Divided by ten at each share in `step_at`."""
    return 0.1 ** sum(done >= at for at in step_at)


def constant(done: float, step_at: Sequence[float]) -> float:
    """The peak rate throughout."""
    return 1.0
