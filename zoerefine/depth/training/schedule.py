"""Learning rate schedules: pure functions of the step, so a resume needs no state.

A shape is a function of the share of the run that is done, and of `cfg.TRAIN`. It gives rates as
shares of the peak. To add one, write the function and one row of `registries.SCHEDULES`.
"""

import math
from dataclasses import dataclass

from zoerefine.base.config.training_keys import TrainKeys
from zoerefine.base.registries import SCHEDULES


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step of a run of so many steps, as TRAIN describes it."""

    options: TrainKeys
    steps: int

    def rate(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        name, peak, warmup = self.options.SCHEDULE, self.options.LR, 0
        if name != "onecycle":  # which rises by itself
            warmup = max(1, round(self.options.WARMUP * self.steps))
        if step < warmup:
            return peak * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        if name == "step":  # TRAIN.STEP_AT counts the warm-up, too
            done = step / self.steps
        return float(peak * SCHEDULES.load(name)(done, self.options))


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


def cosine(done: float, options: TrainKeys) -> float:
    """Half a cosine down (Loshchilov and Hutter 2017)."""
    return half_cosine(1.0, options.COSINE_END, done)


def one_cycle(done: float, options: TrainKeys) -> float:
    """Half a cosine up, half a cosine down (Smith and Topin 2018)."""
    rise = options.CYCLE_RISE
    if done < rise:
        return half_cosine(options.CYCLE_START, 1.0, done / rise)
    return half_cosine(1.0, options.CYCLE_END, (done - rise) / (1 - rise))


def steps_down(done: float, options: TrainKeys) -> float:
    """Multiplied by STEP_FACTOR at each share in STEP_AT."""
    return options.STEP_FACTOR ** sum(done >= at for at in options.STEP_AT)


def constant(done: float, options: TrainKeys) -> float:
    """The peak rate throughout."""
    return 1.0
