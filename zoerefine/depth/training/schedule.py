"""Learning rate schedules: pure functions of the step, so a resume needs no state.

A shape is a function of the share of the run that is done, and of `ShapeOptions`. To add one,
write the function and one row of `registries.SCHEDULES`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zoerefine.base.config.training_keys import TrainKeys
from zoerefine.base.registries import SCHEDULES


@dataclass(frozen=True)
class ShapeOptions:
    """The constants of the shapes; rates are shares of the peak.

    Attributes:
        step_at: shares of the run at which `step` lowers the rate.
        step_factor: what `step` multiplies the rate by.
        cosine_end: the last rate of `cosine`.
        cycle_rise: share of the steps in which the rate of `onecycle` rises.
        cycle_start, cycle_end: the first and the last rate of `onecycle`.
    """

    step_at: Sequence[float] = ()
    step_factor: float = 0.1
    cosine_end: float = 0.0
    cycle_rise: float = 0.3
    cycle_start: float = 1 / 25
    cycle_end: float = 1 / 250_000


Shape = Callable[[float, ShapeOptions], float]


def make_schedule(options: TrainKeys, steps: int) -> "Schedule":
    """The schedule that TRAIN describes, for a run of some steps."""
    shape = ShapeOptions(
        options.STEP_AT,
        options.STEP_FACTOR,
        options.COSINE_END,
        options.CYCLE_RISE,
        options.CYCLE_START,
        options.CYCLE_END,
    )
    return Schedule(options.SCHEDULE, options.LR, steps, options.WARMUP, shape)


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step of a run.

    Attributes:
        name: a name of `registries.SCHEDULES`.
        peak: the highest rate.
        steps: of the whole run.
        warmup: share of the steps with a linear rise first; `onecycle` ignores it.
        options: the constants of the shape.
    """

    name: str
    peak: float
    steps: int
    warmup: float
    options: ShapeOptions = ShapeOptions()

    def rate(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        warmup = 0 if self.name == "onecycle" else max(1, round(self.warmup * self.steps))
        if step < warmup:
            return self.peak * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        if self.name == "step":  # TRAIN.STEP_AT counts the warm-up, too
            done = step / self.steps
        shape: Shape = SCHEDULES.load(self.name)
        return self.peak * shape(done, self.options)


@dataclass(frozen=True)
class GeometricSchedule:
    """A learning rate that is multiplied by the same factor at every step."""

    low: float
    high: float
    steps: int

    def rate(self, step: int) -> float:
        return float(self.low * (self.high / self.low) ** (step / max(1, self.steps - 1)))


def half_cosine(start: float, end: float, done: float) -> float:
    """Half a cosine from one rate to another; `done` in 0..1."""
    return end + (start - end) * ((1 + math.cos(math.pi * done)) / 2)


def cosine(done: float, options: ShapeOptions) -> float:
    """Half a cosine down (Loshchilov and Hutter 2017)."""
    return half_cosine(1.0, options.cosine_end, done)


def one_cycle(done: float, options: ShapeOptions) -> float:
    """Half a cosine up, half a cosine down (Smith and Topin 2018)."""
    rise = options.cycle_rise
    if done < rise:
        return half_cosine(options.cycle_start, 1.0, done / rise)
    return half_cosine(1.0, options.cycle_end, (done - rise) / (1 - rise))


def steps_down(done: float, options: ShapeOptions) -> float:
    """Multiplied by `step_factor` at each share in `step_at`."""
    return options.step_factor ** sum(done >= at for at in options.step_at)


def constant(done: float, options: ShapeOptions) -> float:
    """The peak rate throughout."""
    return 1.0
