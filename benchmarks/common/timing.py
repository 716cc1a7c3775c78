"""Calls timed in turns, so that a noisy machine disturbs all sides alike."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

LEAST, MOST = 5, 200  # rounds


def in_turns(sides: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, np.ndarray]:
    """Milliseconds of every call, by side, for about so many seconds in all.

    Each side runs twice before: compilers and caches work in the first calls.
    """
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for run in (*sides.values(), *sides.values()):
        timed(run)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < LEAST or (rounds < MOST and time.perf_counter() < end):
        for name, run in sides.items():
            samples[name].append(timed(run))
        rounds += 1
    return {name: np.array(values) for name, values in samples.items()}


def timed(run: Callable[[], object]) -> float:
    """Milliseconds of one call, to the end of its work on a GPU if there is one."""
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3
