"""Learning rates: pure functions of the step, so a resume needs no state."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zoerefine.errors import UserError

ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1 / 250_000  # of the peak, as torch's OneCycleLR has them
ONE_CYCLE_UP = 0.3  # share of the steps in which it rises


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step of a run.

    Attributes:
        name: one of `SHAPES`.
        peak: the largest rate.
        steps: of the whole run.
        warmup: share of the steps in which the rate rises in a line first (not of `onecycle`).
        step_at: shares of the run at which `step` divides the rate by ten.
    """

    name: str
    peak: float
    steps: int
    warmup: float
    step_at: Sequence[float] = ()

    def __post_init__(self) -> None:
        if self.name not in SHAPES:
            known = ", ".join(SHAPES)
            raise UserError(f"TRAIN.SCHEDULE must be one of {known}, got {self.name!r}")
        if not all(isinstance(at, int | float) and 0 < at < 1 for at in self.step_at):
            raise UserError(f"TRAIN.STEP_AT must be shares between 0 and 1, got {self.step_at}")

    def rate(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        warmup = 0 if self.name == "onecycle" else max(1, round(self.warmup * self.steps))
        if step < warmup:
            return self.peak * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        if self.name == "step":  # its shares are of the whole run
            done = step / self.steps
        return self.peak * SHAPES[self.name](done, self.step_at)


def cosine(done: float, step_at: Sequence[float]) -> float:
    """Half a cosine down to zero (Loshchilov and Hutter 2017)."""
    return (1 + math.cos(math.pi * done)) / 2


def one_cycle(done: float, step_at: Sequence[float]) -> float:
    """Up and down again in half cosines (Smith and Topin 2018)."""
    if done < ONE_CYCLE_UP:
        start, end, share = ONE_CYCLE_START, 1.0, done / ONE_CYCLE_UP
    else:
        start, end, share = 1.0, ONE_CYCLE_END, (done - ONE_CYCLE_UP) / (1 - ONE_CYCLE_UP)
    return end + (start - end) * cosine(share, ())


def steps_down(done: float, step_at: Sequence[float]) -> float:
    """Divided by ten at each of some shares of the run."""
    return 0.1 ** sum(done >= at for at in step_at)


def constant(done: float, step_at: Sequence[float]) -> float:
    """The same for ever."""
    return 1.0


SHAPES: dict[str, Callable[[float, Sequence[float]], float]] = {
    "cosine": cosine,
    "onecycle": one_cycle,
    "step": steps_down,
    "constant": constant,
}
