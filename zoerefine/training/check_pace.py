"""How large the short trainings of `zoerefine check` may be within a time limit."""

import math
import time
from dataclasses import dataclass

from zoerefine.data.prefetch import DeviceBatch
from zoerefine.training.trainer import Trainer

MIN_STEPS, MAX_STEPS = 24, 40  # of a short training
MIN_SAMPLES = 4  # of a step of a short training
SHORT_TRAININGS = 8  # their number, and that of the other checks, in all


@dataclass(frozen=True)
class Pace:
    """The size of short trainings.

    Attributes:
        parts: a step takes the first of this many parts of a batch.
        steps: of a short training.
        step_s: seconds of such a step.
    """

    parts: int
    steps: int
    step_s: float


def measure_pace(trainer: Trainer, batch: DeviceBatch, limit_s: float) -> Pace:
    """Time a step of a few samples, and choose the largest short trainings within the limit."""
    samples = len(batch.index)
    few = batch.split(max(1, samples // MIN_SAMPLES))[0]
    for _ in range(2):  # the first step prepares kernels
        start = time.perf_counter()
        trainer.train_step(few)[0].item()
        sample_s = (time.perf_counter() - start) / len(few.index)
    return choose_pace(sample_s, samples, limit_s)


def choose_pace(sample_s: float, samples: int, limit_s: float) -> Pace:
    """As many samples a step as allow MIN_STEPS, at least MIN_SAMPLES; then as many steps."""
    parts = 1
    while samples // (2 * parts) >= MIN_SAMPLES:
        if fitting_steps(sample_s * samples / parts, limit_s) >= MIN_STEPS:
            break
        parts *= 2
    step_s = sample_s * math.ceil(samples / parts)
    steps = fitting_steps(step_s, limit_s)
    return Pace(parts, max(MIN_STEPS, min(MAX_STEPS, steps)), step_s)


def fitting_steps(step_s: float, limit_s: float) -> int:
    """Steps of a short training if all of them together take the time limit."""
    return int(limit_s / step_s / SHORT_TRAININGS)
