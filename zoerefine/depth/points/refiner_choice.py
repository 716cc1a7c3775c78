"""Whether a room uses the refiner: only where the measurements show clearly that it helps."""

import math
from dataclasses import dataclass

import numpy as np

from zoerefine.depth.points.measured import RoomFound
from zoerefine.depth.points.room import frame_numbers

# A refiner is used where it helps by so many standard errors, at so many measurements or more in
# several frames: those of one frame do not show what it does in others. Chosen by
# benchmarks/measured.py, where it then costs nothing in the mean.
EVIDENCE, LEAST_EVIDENCE = 2.0, 5


@dataclass(frozen=True)
class RefinerChoice:
    """Whether a room's calibration corrects refined depth, or pseudo depth without the refiner.

    Attributes:
        used: whether the refiner is used.
        error, without: the mean size of `RoomFound.errors` with the refiner, and without it.
    """

    used: bool
    error: float
    without: float

    @classmethod
    def of(cls, without: RoomFound, refined: RoomFound) -> "RefinerChoice":
        """The refiner is left away unless the measurements show clearly that it helps.

        Measurements that hardly count in both calibrations hardly count here.
        """
        sizes = np.abs(refined.errors), np.abs(without.errors)
        count = len(without.errors)
        if count < LEAST_EVIDENCE:
            return cls(False, *(float(np.mean(one)) if count else 0.0 for one in sizes))
        weights = np.maximum(refined.calibration.weights, without.calibration.weights)
        weights = np.minimum(weights, 1)
        error, less = (float(np.average(one, weights=weights)) for one in sizes)
        squares = (sizes[1] - sizes[0] - (less - error)) ** 2
        deviation = math.sqrt(np.average(squares, weights=weights) / (count - 1))
        several = frame_numbers(without.used).any()
        return cls(bool(several and less - error > EVIDENCE * deviation), error, less)

    def __str__(self) -> str:
        used = "used" if self.used else "left away"
        return (
            f"the refiner is {used}: what was measured is off by a factor of "
            f"{math.exp(self.error):.2f} with it and {math.exp(self.without):.2f} without it, each "
            "predicted by the others"
        )
