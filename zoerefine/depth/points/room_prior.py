"""What rooms vary in: the prior of a room's calibration.

In a room, log true depth = features @ coefficients + an effect of the frame + an error of the
pixel. `features` are the scale, the range (log predicted depth and its square), and a smooth change
over the picture. A room's coefficients are drawn from a normal distribution over rooms.
`room_prior.json` holds what benchmarks/measured.py found of it, with its origin.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CENTRE_M = 2.5  # log depth is relative to this
NEAREST_M, FARTHEST_M = 0.05, 300.0  # predicted depth counts as within this range
NAMES = ("scale", "range", "x", "y", "from the centre", "range squared")
SHIPPED = Path(__file__).with_name("room_prior.json")

Array = np.ndarray


@dataclass(frozen=True)
class RoomPrior:
    """A normal distribution of a room's coefficients, and the variances around them.

    Attributes:
        mean, covariance: float64 [6] and [6, 6], in the order of `NAMES`.
        pixel_variance, frame_variance: of log depth.
        origin: of the rooms, for people.
    """

    mean: Array
    covariance: Array
    pixel_variance: float
    frame_variance: float
    origin: str

    @classmethod
    def shipped(cls) -> "RoomPrior":
        found = json.loads(SHIPPED.read_text())
        return cls(
            np.array(found["mean"]), np.array(found["covariance"]), found["pixel_variance"],
            found["frame_variance"], found["origin"],
        )  # fmt: skip


def features(predicted_m: Array, x01: Array, y01: Array) -> Array:
    """What the log of true depth depends on, float64 [..., 6], in the order of `NAMES`.

    Args:
        predicted_m: metres, above 0.
        x01, y01: places in the picture, 0 to 1 from its upper left corner.
    """
    x, y = np.asarray(x01) - 0.5, np.asarray(y01) - 0.5
    metres = np.clip(np.asarray(predicted_m, np.float64), NEAREST_M, FARTHEST_M)
    z = np.log(metres / CENTRE_M)
    return np.stack(np.broadcast_arrays(1.0, z, x, y, x**2 + y**2, z**2), -1)
