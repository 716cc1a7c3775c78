"""Times calls in turns, so that other work on the machine disturbs all sides alike."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

MIN_ROUNDS, MAX_ROUNDS = 5, 200


def in_turns(sides: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, np.ndarray]:
    """Milliseconds of every call, by side. All rounds together take about `seconds`.

    Each side runs twice before, because the first calls compile and fill caches.
    """
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for run in (*sides.values(), *sides.values()):
        timed(run)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < MIN_ROUNDS or (rounds < MAX_ROUNDS and time.perf_counter() < end):
        for name, run in sides.items():
            samples[name].append(timed(run))
        rounds += 1
    return {name: np.array(values) for name, values in samples.items()}


def timed(run: Callable[[], object]) -> float:
    """Milliseconds of one call, until a GPU, if there is one, has finished."""
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3
