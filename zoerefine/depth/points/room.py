"""A room's calibration: scale, range and a smooth change over the picture, from a few distances
that were measured once. It corrects every other frame of that room, camera and depth network.

A room's coefficients are a normal distribution, at first that of other rooms (`room_prior.py`).
Measurements make it narrower by Bayesian linear regression (Rasmussen and Williams, Gaussian
Processes for Machine Learning, eq. 2.8); those of one frame have an effect of the frame in common.
Errors of measurements have Student's t distribution, so a wrong one loses its weight (Lange, Little
and Taylor, Robust statistical modeling using the t distribution, 1989), and their variance in this
room is found with them. A distance between two pixels is linear in the coefficients around the
estimate of the round before.

The band around corrected depth is as wide as the measurements of each frame need it to be when the
other frames predict them, and as other rooms need it.

Importing this file does not import torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zoerefine.depth.points.room_prior import (
    CENTRE_M,
    FARTHEST_M,
    NEAREST_M,
    RoomPrior,
    features,
)

MEASURED_SHARE = 0.03  # standard deviation of a measurement, as a share of it
FREEDOM = 4.0  # of Student's t
PRIOR_COUNT = 4.0  # how many measurements the prior of the pixels' variance counts as
ROUNDS = 25
# Least relative error wants less than the median: depth * exp(-LEAN * pixel variance). More of it
# is better on average, but costs rooms that are nearly right already.
LEAN = 0.6
COVERAGE = 0.9  # of a band
BAND = 1.645  # standard deviations of 90% of a normal distribution
# Scores of other rooms' pixels: those of a normal distribution, a little wider. Chosen, as OTHERS,
# by the coverage in the rooms of benchmarks/measured.py.
OTHER_SCORES = 1.1 * np.array([
    0.031, 0.094, 0.157, 0.221, 0.285, 0.350, 0.417, 0.485, 0.555, 0.628,
    0.704, 0.784, 0.869, 0.960, 1.061, 1.175, 1.311, 1.482, 1.732, 2.241,
])  # fmt: skip
OTHERS = 5.0  # as many measurements they count
GRID = 9, 12  # rows and columns of places where to measure next

Array = np.ndarray


@dataclass(frozen=True)
class Measurement:
    """What was measured once, at predicted depth.

    Attributes:
        frame: its name; measurements of one frame have its effect in common.
        features: of the pixel, float64 [6], as `room_prior.features` gives them.
        metres: its depth, or the distance to `other`.
        other: features of the second pixel of a distance.
        rays: of both pixels of a distance, float64 [2, 3]: x and y at depth 1, and 1.
    """

    frame: str
    features: Array
    metres: float
    other: Array | None = None
    rays: Array | None = None


@dataclass(frozen=True)
class Range:
    """A number, and the ends of the interval that holds the true one with 90% probability."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class RoomCalibration:
    """What measurements say of a room.

    Attributes:
        mean, covariance: of the coefficients, float64 [6] and [6, 6].
        pixel_variance, frame_variance: of log depth around them, in this room.
        weights: how much each measurement counts, float64 [N]; about 1 for one that agrees.
        band: how many standard deviations of a pixel hold 90% of them.
    """

    mean: Array
    covariance: Array
    pixel_variance: float
    frame_variance: float
    weights: Array
    band: float

    def factor(self) -> Range:
        """What a predicted depth of CENTRE_M is multiplied by, in the middle of a picture."""
        row = features(np.array(CENTRE_M), np.array(0.5), np.array(0.5))
        apart = math.exp(BAND * math.sqrt(row @ self.covariance @ row))
        middle = float(self.depth_m(row)) / CENTRE_M
        return Range(middle, middle / apart, middle * apart)

    def exponent(self) -> Range:
        """By what power true depth grows with predicted depth, at CENTRE_M."""
        middle, apart = float(self.mean[1]), BAND * math.sqrt(self.covariance[1, 1])
        return Range(middle, middle - apart, middle + apart)

    def depth_m(self, rows: Array) -> Array:
        """Corrected depth of pixels with these features [..., 6], metres."""
        return np.exp(rows @ self.mean - LEAN * self.pixel_variance)

    def spread(self, rows: Array) -> Array:
        """The truth lies within depth * exp(+-spread) at 90% of pixels with these features."""
        return self.band * np.sqrt(self.shared_variance(rows) + self.pixel_variance)

    def shared_variance(self, rows: Array) -> Array:
        """The variance of log depth that is not a pixel's own: coefficients and frame."""
        return np.sum((rows @ self.covariance) * rows, -1) + self.frame_variance


@dataclass(frozen=True)
class RoomPictures:
    """A calibration for pictures of one size: polynomials of z, log predicted depth / CENTRE_M.

    At a pixel the features are u + z v + z^2 w, where v and w are unit vectors and u depends on the
    place alone. So the log of depth is a polynomial of degree 2 and its variance one of degree 4.

    Attributes:
        log_depth: for each power of z, float32 [H, W] or a number.
        variance: the same.
        pixel_variance: of log depth around them.
        band: as of the calibration.
    """

    log_depth: tuple[Array | np.float32, ...]
    variance: tuple[Array | np.float32, ...]
    pixel_variance: float
    band: float

    @classmethod
    def of(cls, room: RoomCalibration, height: int, width: int) -> "RoomPictures":
        """The polynomials of every pixel."""
        x01, y01 = (np.arange(width) + 0.5) / width, (np.arange(height)[:, None] + 0.5) / height
        place = features(np.array(CENTRE_M), x01, y01)  # where z is 0
        mean, of_place, one = room.mean, place @ room.covariance, room.covariance
        log_depth = place @ mean - LEAN * room.pixel_variance, mean[1], mean[5]
        variance = (
            np.sum(of_place * place, -1) + room.frame_variance, 2 * of_place[..., 1],
            one[1, 1] + 2 * of_place[..., 5], 2 * one[1, 5], one[5, 5],
        )  # fmt: skip
        return cls(single(log_depth), single(variance), room.pixel_variance, room.band)

    def corrected_m(self, predicted_m: Array) -> tuple[Array, Array]:
        """Corrected depth, and its spread in log depth, float32 [H, W] each.

        Both are 0 where predicted depth [H, W], metres, is not above 0. Single precision: within
        1e-4 of `depth_m` and `spread`, relative.
        """
        valid = np.isfinite(predicted_m) & (predicted_m > 0)
        z = np.clip(np.where(valid, predicted_m, 1), NEAREST_M, FARTHEST_M, dtype=np.float32)
        z *= np.float32(1 / CENTRE_M)
        np.log(z, out=z)
        variance = polynomial(self.variance, z)
        depth_m = polynomial(self.log_depth, z)
        np.exp(depth_m, out=depth_m)
        variance += np.float32(self.pixel_variance)
        spread = np.sqrt(variance, out=variance)
        spread *= np.float32(self.band)
        return depth_m * valid, spread * valid


def single(powers: Sequence[Array | float]) -> tuple[Array | np.float32, ...]:
    """The same in single precision."""
    return tuple(np.float32(power) for power in powers)


def polynomial(powers: Sequence[Array | np.float32], z: Array) -> Array:
    """A polynomial by Horner's rule, float32 [H, W]."""
    found = np.full_like(z, powers[-1])
    for power in reversed(powers[:-1]):
        found *= z
        found += power
    return found


def calibrate(prior: RoomPrior, measured: Sequence[Measurement]) -> RoomCalibration:
    """The calibration of a room. Without measurements it is the prior."""
    of_frame = frame_numbers(measured)
    together = of_frame[:, None] == of_frame[None]
    mean, variance, weights = prior.mean, prior.pixel_variance, np.ones(len(measured))
    covariance = prior.covariance
    for _ in range(ROUNDS if measured else 0):
        rows, log_m, share = linear(measured, mean)
        known = rows @ prior.covariance @ rows.T + prior.frame_variance * together
        noise = share * variance / weights + MEASURED_SHARE**2
        inverse = np.linalg.inv(known + np.diag(noise))
        error = log_m - rows @ prior.mean
        gain = prior.covariance @ rows.T @ inverse
        mean = prior.mean + gain @ error
        covariance = prior.covariance - gain @ rows @ prior.covariance
        left = error - known @ inverse @ error
        squares = (left**2 + np.diag(known - known @ inverse @ known)) / share
        weights = (FREEDOM + 1) / (FREEDOM + squares / variance)
        total = PRIOR_COUNT * prior.pixel_variance + weights @ squares
        variance = float(total / (PRIOR_COUNT + len(measured)))
    frame_variance = prior.frame_variance * variance / prior.pixel_variance
    scores = np.empty(0)
    if measured:
        system = known + np.diag(share * variance / weights + MEASURED_SHARE**2)
        # Of a measurement from another frame: with this room's variances, without robust weights.
        changed = frame_variance - prior.frame_variance + share * variance * (1 - 1 / weights)
        of_others, its_variance = left_out(system, error, of_frame)
        scores = np.abs(of_others) / np.sqrt(np.maximum(its_variance + changed, 1e-6))
    band = quantile(scores, OTHER_SCORES, OTHERS)
    return RoomCalibration(mean, covariance, variance, frame_variance, weights, band)


def left_out(system: Array, error: Array, of_frame: Array) -> tuple[Array, Array]:
    """Each error less what the other frames predict of it, and the variance of that, [N] each.

    `system` is the covariance of the errors, [N, N].
    Leaving out a block of a normal distribution needs only its block of the precision (Rasmussen
    and Williams, section 5.4.2).
    """
    precision = np.linalg.inv(system)
    told, left, variance = precision @ error, np.zeros(len(error)), np.zeros(len(error))
    for number in np.unique(of_frame):
        chosen = of_frame == number
        block = np.linalg.inv(precision[np.ix_(chosen, chosen)])
        left[chosen], variance[chosen] = block @ told[chosen], np.diag(block)
    return left, variance


def unseen_errors(
    prior: RoomPrior, measured: Sequence[Measurement], room: RoomCalibration
) -> Array:
    """The error of log depth at each measurement when the other frames predict it, [N].

    Of a single frame, its other measurements do.
    """
    if not measured:
        return np.empty(0)
    of_frame = frame_numbers(measured)
    rows, log_m, share = linear(measured, room.mean)
    known = rows @ prior.covariance @ rows.T
    known += prior.frame_variance * (of_frame[:, None] == of_frame)
    noise = share * room.pixel_variance / room.weights + MEASURED_SHARE**2
    parts = of_frame if of_frame.any() else np.arange(len(of_frame))
    return left_out(known + np.diag(noise), log_m - rows @ prior.mean, parts)[0]


def frame_numbers(measured: Sequence[Measurement]) -> Array:
    """The number of each measurement's frame, from 0."""
    names = sorted({one.frame for one in measured})
    return np.array([names.index(one.frame) for one in measured], int)


def linear(measured: Sequence[Measurement], mean: Array) -> tuple[Array, Array, Array]:
    """Measurements as linear ones: rows [N, 6], their log metres, and shares of pixel variance."""
    found = [linear_one(one, mean) for one in measured]
    rows, log_m, share = zip(*found, strict=True)
    return np.array(rows), np.array(log_m), np.array(share)


def linear_one(one: Measurement, mean: Array) -> tuple[Array, float, float]:
    """The same for one measurement."""
    if one.other is None:
        return one.features, math.log(one.metres), 1.0
    pixels = np.stack([one.features, one.other])
    ends = ends_of(one, mean)
    between = ends[0] - ends[1]
    square = float(between @ between)
    slopes = ends @ between / square * [1, -1]  # of log distance by log depth; their sum is 1
    row = slopes @ pixels
    return row, math.log(one.metres) - math.log(square) / 2 + float(row @ mean), slopes @ slopes


def ends_of(one: Measurement, mean: Array) -> Array:
    """Where the two pixels of a distance are by coefficients, metres from the camera, [2, 3]."""
    assert one.other is not None and one.rays is not None
    return np.exp(np.stack([one.features, one.other]) @ mean)[:, None] * one.rays


@dataclass(frozen=True)
class Place:
    """A place of which a measurement would say most.

    Attributes:
        frame: its name.
        x, y: pixels.
        words: for people, such as "something near, at the lower left".
        gain: the share of the variance over all places that it would remove.
    """

    frame: str
    x: int
    y: int
    words: str
    gain: float


def next_place(
    room: RoomCalibration, frames: Mapping[str, Array], measured: Sequence[Measurement] = ()
) -> Place:
    """The place in these frames, predicted depth [H, W] metres, that would say most.

    That is the one whose measurement removes most of the variance over all places.

    Args:
        measured: what the room was calibrated with: one more in the same frame says less.
    """
    found = [(name, *place) for name, depth_m in frames.items() for place in places(depth_m)]
    names, x, y, depths = zip(*found, strict=True)
    sizes = np.array([frames[name].shape for name in names])
    x01, y01 = (np.array(x) + 0.5) / sizes[:, 1], (np.array(y) + 0.5) / sizes[:, 0]
    rows = features(np.array(depths), x01, y01)
    of_frame = {name: effect_of_frame(room, name, measured) for name in frames}
    effects = [of_frame[name] for name in names]
    measured_rows = rows - np.array([row for row, _ in effects])
    own = np.array([variance for _, variance in effects])
    variance = np.sum((measured_rows @ room.covariance) * measured_rows, -1) + own
    # Of each place's log depth with that of all places, squared, the mean over these.
    covariance = measured_rows @ room.covariance
    squares = np.sum((covariance @ (rows.T @ rows / len(rows))) * covariance, -1)
    gains = squares / (variance + room.pixel_variance + MEASURED_SHARE**2)
    best = int(np.argmax(gains))
    level = int(np.searchsorted(np.quantile(depths, (1 / 3, 2 / 3)), depths[best]))
    far = ("near", "at a middle distance", "far away")[level]
    words = f"something {far}, {side_of(x01[best], y01[best])}"
    share = float(gains[best] / np.mean(np.sum((rows @ room.covariance) * rows, -1)))
    return Place(names[best], int(x[best]), int(y[best]), words, share)


def effect_of_frame(
    room: RoomCalibration, name: str, measured: Sequence[Measurement]
) -> tuple[Array, float]:
    """What the measurements of a frame say of its effect, given coefficients.

    The effect is a constant - row @ coefficients, with this variance.
    """
    row, precision = np.zeros(len(room.mean)), 1 / room.frame_variance
    for one, weight in zip(measured, room.weights, strict=False):
        if one.frame == name:
            of_one, _, share = linear_one(one, room.mean)
            certain = 1 / (share * room.pixel_variance / weight + MEASURED_SHARE**2)
            row, precision = row + certain * of_one, precision + certain
    return row / precision, 1 / precision


def places(depth_m: Array) -> list[tuple[int, int, float]]:
    """Places of a grid over a picture with valid depth: x, y and metres."""
    height, width = depth_m.shape
    ys, xs = (((np.arange(n) + 0.5) * size / n).astype(int) for n, size in zip(
        GRID, (height, width), strict=True
    ))  # fmt: skip
    return [(x, y, float(depth_m[y, x])) for y in ys for x in xs if 0 < depth_m[y, x] < FARTHEST_M]


def side_of(x01: float, y01: float) -> str:
    """A place in a picture in words."""
    row = ("upper", "", "lower")[min(2, int(3 * y01))]
    column = ("left", "", "right")[min(2, int(3 * x01))]
    if row and column:
        return f"at the {row} {column}"
    return f"at the {column or row} edge" if row or column else "in the middle"


def quantile(scores: Array, others: Array, weight: float) -> float:
    """How wide a band of 90% is: the score that COVERAGE of all keep.

    A score is an error in the standard deviations that were expected of it (split conformal
    prediction, Lei et al. 2018, with scaled residuals). What was measured gives few of them.

    Args:
        others: scores of other rooms, which count as `weight` scores in all.
    """
    values = np.concatenate([scores, others])
    weights = np.concatenate([np.ones(len(scores)), np.full(len(others), weight / len(others))])
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    last = min(int(np.searchsorted(share, COVERAGE)), len(values) - 1)
    return float(values[order[last]])
