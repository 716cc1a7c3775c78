"""The prior of a room's calibration, found from rooms whose true depth is known.

The mean, the covariance and both variances are found by expectation maximisation (Laird and Ware,
Random-effects models for longitudinal data, Biometrics 1982).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoerefine.depth.points.room_prior import NAMES, RoomPrior

ROUNDS = 30
LEAST_FRAMES = 4  # of a room that tells how frames vary

Array = np.ndarray


@dataclass(frozen=True)
class TrueDepth:
    """Pixels of a frame whose true depth is known; float64 [N] each.

    Attributes:
        features: [N, 6], as `features` gives them.
        true_m: metres.
    """

    features: Array
    true_m: Array


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
