"""What rooms vary in: the prior of a room's calibration, and how it is found from training rooms.

In a room, log true depth = features @ coefficients + an effect of the frame + an error of the
pixel. `features` are the scale, the range (log predicted depth and its square), and a smooth change
over the picture. A room's coefficients are drawn from a normal distribution over rooms. Its mean,
its covariance and both variances are found by expectation maximisation (Laird and Ware,
Random-effects models for longitudinal data, Biometrics 1982).

`room_prior.json` holds what was found, with its origin.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CENTRE_M = 2.5  # log depth is relative to this
NEAREST_M, FARTHEST_M = 0.05, 300.0  # predicted depth counts as within this range
NAMES = ("scale", "range", "x", "y", "from the centre", "range squared")
SHIPPED = Path(__file__).with_name("room_prior.json")
ROUNDS = 30
LEAST_FRAMES = 4  # of a room that tells how frames vary

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
        """The prior that comes with this package."""
        found = json.loads(SHIPPED.read_text())
        return cls(
            np.array(found["mean"]), np.array(found["covariance"]), found["pixel_variance"],
            found["frame_variance"], found["origin"],
        )  # fmt: skip


@dataclass(frozen=True)
class TrueDepth:
    """Pixels of a frame whose true depth is known; float64 [N] each.

    Attributes:
        features: [N, 6], as `features` gives them.
        true_m: metres.
    """

    features: Array
    true_m: Array


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


def fit_prior(rooms: Sequence[Sequence[TrueDepth]], origin: str) -> RoomPrior:
    """The prior from rooms, each a sequence of frames."""
    count = len(NAMES)
    start = np.zeros(count)
    start[1] = 1.0  # predicted depth is right
    found = RoomPrior(start, 0.2 * np.eye(count), 0.05, 0.04, origin)
    for _ in range(ROUNDS):
        found = better_prior(found, [in_room(found, room) for room in rooms])
    return found


@dataclass(frozen=True)
class InRoom:
    """A room's coefficients given its true depth, and what is left.

    Attributes:
        mean, covariance: [6] and [6, 6].
        pixels, frames: sums of squares that are expected, and of how many.
    """

    mean: Array
    covariance: Array
    pixels: tuple[float, int]
    frames: tuple[float, int]


def in_room(prior: RoomPrior, room: Sequence[TrueDepth]) -> InRoom:
    """The expectation step for one room."""
    count = len(prior.mean)
    of_frame = np.repeat(np.arange(len(room)), [len(frame.true_m) for frame in room])
    rows = np.concatenate([frame.features for frame in room])
    rows = np.hstack([rows, np.eye(len(room))[of_frame]])
    log_m = np.log(np.concatenate([frame.true_m for frame in room]))
    precision = np.diag(np.full(count + len(room), 1 / prior.frame_variance))
    precision[:count, :count] = np.linalg.inv(prior.covariance)
    told = np.concatenate([precision[:count, :count] @ prior.mean, np.zeros(len(room))])
    covariance = np.linalg.inv(precision + rows.T @ rows / prior.pixel_variance)
    mean = covariance @ (told + rows.T @ log_m / prior.pixel_variance)
    left = log_m - rows @ mean
    pixels = left @ left + np.sum((rows @ covariance) * rows)
    frames = mean[count:] @ mean[count:] + np.trace(covariance[count:, count:])
    known = (float(frames), len(room)) if len(room) >= LEAST_FRAMES else (0.0, 0)
    return InRoom(mean[:count], covariance[:count, :count], (float(pixels), len(log_m)), known)


def better_prior(prior: RoomPrior, rooms: Sequence[InRoom]) -> RoomPrior:
    """The maximisation step."""
    mean = np.mean([room.mean for room in rooms], 0)
    apart = [room.covariance + np.outer(room.mean - mean, room.mean - mean) for room in rooms]
    pixels, frames = (
        np.sum([getattr(room, name) for room in rooms], 0) for name in ("pixels", "frames")
    )
    frame_variance = frames[0] / frames[1] if frames[1] else prior.frame_variance
    return RoomPrior(
        mean, np.mean(apart, 0), float(pixels[0] / pixels[1]), float(frame_variance), prior.origin
    )
