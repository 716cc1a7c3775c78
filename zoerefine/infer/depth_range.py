"""The range of depth that colours show, the same in every picture of an inference."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from zoerefine.data.decode import read_zoe
from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth_limits import FARTHEST_M
from zoerefine.infer.inference import Inference

SAMPLED_FRAMES = 24  # evenly spaced
EVERY_PIXEL = 4  # of these frames' rows and columns is read
PERCENTILES = 1, 99
STEPS_PER_M = 10  # a range begins and ends at a multiple of 0.1 m


@dataclass(frozen=True)
class DepthRange:
    """The depths at the two ends of the colours, metres."""

    near_m: float
    far_m: float

    def __str__(self) -> str:
        return f"{self.near_m:g} to {self.far_m:g} m"


def range_of_data(job: Inference, done: Iterable[str]) -> DepthRange:
    """From the 1st to the 99th percentile of pseudo and refined depth, outwards to 0.1 m.

    Args:
        done: the finished frames by name; some are read, evenly spaced.
    """
    names = sorted(done)
    chosen = np.linspace(0, len(names) - 1, min(SAMPLED_FRAMES, len(names))).round().astype(int)
    files = [path(names[i]) for i in chosen for path in (job.pseudo.path, job.results.depth)]
    depths = [read_zoe(file)[::EVERY_PIXEL, ::EVERY_PIXEL].ravel() for file in files]
    valid = np.concatenate(depths)
    valid = valid[valid > 0] * ZOE_UNIT_M
    if not len(valid):
        return DepthRange(0.0, FARTHEST_M)
    low, high = np.percentile(valid, PERCENTILES)
    first, last = math.floor(low * STEPS_PER_M), math.ceil(high * STEPS_PER_M)
    return DepthRange(first / STEPS_PER_M, max(last, first + 1) / STEPS_PER_M)
