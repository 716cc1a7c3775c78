"""The order of frames by the numbers in their names, and between which ones frames are missing."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise

import numpy as np

from zoerefine.depth.data.dataset import Frame

NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)")  # in a frame's name


def in_order(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Frames by scene and clip; within a clip by name, with numbers by their value: 9 before 10."""
    return tuple(sorted(frames, key=lambda f: (f.scene, f.clip, *number_order(f.name))))


def number_order(name: str) -> tuple[list[str | Decimal], str]:
    """A key that sorts names by the values of the numbers in them: 9 before 10, .15 before .2."""
    parts = NUMBER.split(name)
    return [Decimal(part) if number % 2 else part for number, part in enumerate(parts)], name


def follows(names: Sequence[str]) -> np.ndarray:
    """Whether each frame of a clip is the next one after that before it, bool [N].

    It is none where the numbers in their names are over 1.5 times as far apart as in most pairs:
    frames between them are missing. Names that do not ascend tell nothing.
    """
    numbers = [[Decimal(text) for text in NUMBER.findall(name)] for name in names]
    steps = [
        next((float(y - x) for x, y in zip(*pair, strict=False) if x != y), 0.0)
        for pair in pairwise(numbers)
    ]
    if not steps or min(steps) <= 0:
        return np.arange(len(names)) > 0
    near = 1.5 * np.quantile(steps, 0.5, method="lower")
    return np.array([False, *(step <= near for step in steps)])
