"""Spread what a few metric points say over a whole picture, without any training.

The logarithm of true depth / predicted depth is a Gaussian process over the picture and the
predicted depth: the value at a pixel is like those of points that are near in the picture and at a
similar depth. With points i at x, y (in units of the longer side) and log depth z,

    k(i, j) = SCALE^2 + LOCAL^2 exp(-|x_i - x_j| / L) exp(-|y_i - y_j| / L) exp(-|z_i - z_j| / L)

The first term is an error of scale of the whole picture, the second one of a surface or object.
The mean of the process at a pixel is then a weighted sum over the points (Rasmussen and Williams,
Gaussian Processes for Machine Learning, eq. 2.25). Its kernel is a product over x, y and z, so it
is computed on a coarse grid over the three by matrix products, and interpolated at the pixels.

Outliers: a point counts as one if it differs by more than OUTLIER standard deviations from what
the others predict for it (leave-one-out, eq. 5.12 of the same book).
"""

import cv2
import numpy as np

from zoerefine.data.depth_codec import ZOE_UNIT_M, ZOEDEPTH
from zoerefine.points.metric_points import MetricPoints

# Chosen by the mean error in the rooms of benchmarks/points.py at 5 to 300 points.
SCALE = 0.6  # standard deviation of the log error of a whole picture
LOCAL = 0.25  # of the part that differs within a picture
LENGTH = 0.5  # of the kernel: of the longer side, and of log depth
NOISE = 0.05  # standard deviation of a point's log depth, beside its own sigma
OUTLIER = 2.5
OUTLIER_ROUNDS = 3
IGNORED = 1e4  # the noise of a point that does not count
MAX_POINTS = 400  # the effort grows with the third power
GRID = 24, 32, 16  # rows, columns, depths
NEAREST_M = 1e-2  # predicted depth below this counts as this

Array = np.ndarray


def spread_points(depth_m: Array, points: MetricPoints) -> Array:
    """Correct predicted depth by metric points.

    Args:
        depth_m: float [H, W], metres; 0 marks an invalid pixel and stays 0.
        points: where the predicted depth is valid; others are not used. Without points the depth
            stays as it is.

    Returns:
        Corrected depth, float32 [H, W], metres.
    """
    depth_m = depth_m.astype(np.float32, copy=False)
    points, predicted_m = usable(depth_m, points)
    if not len(points):
        return depth_m
    z = np.log(predicted_m)
    error = np.log(points.depth_m) - z
    place = np.stack([points.y, points.x]) / max(depth_m.shape)
    distance = sum(np.abs(a[:, None] - a[None]) for a in (*place, z))
    covariance = SCALE**2 + LOCAL**2 * np.exp(-distance / LENGTH)
    noise = NOISE**2 + (points.sigma_m / points.depth_m) ** 2
    inside = without_outliers(covariance, noise, error)
    system = covariance[np.ix_(inside, inside)] + np.diag(noise[inside])
    weights = np.linalg.solve(system, error[inside])
    return depth_m * np.exp(field(depth_m, place[:, inside], z[inside], weights))


def spread_points_u16(zoe_u16: Array, points: MetricPoints) -> Array:
    """`spread_points` for depth in the format of files: uint16 [H, W], metres * 256."""
    corrected_u16 = ZOEDEPTH.encode(spread_points(zoe_u16 * np.float32(ZOE_UNIT_M), points))
    return np.maximum(corrected_u16, zoe_u16 > 0)  # a valid pixel stays valid


def usable(depth_m: Array, points: MetricPoints) -> tuple[MetricPoints, Array]:
    """At most MAX_POINTS points where predicted depth is valid, and the depth there, float64 [N].

    Of more points every k-th is used, in the order of rows of the picture.
    """
    height, width = depth_m.shape
    rows = np.clip(np.rint(points.y).astype(int), 0, height - 1)
    columns = np.clip(np.rint(points.x).astype(int), 0, width - 1)
    predicted_m = depth_m[rows, columns].astype(np.float64)
    chosen = np.flatnonzero((predicted_m > 0) & np.isfinite(predicted_m))
    if len(chosen) > MAX_POINTS:
        chosen = chosen[np.lexsort((columns[chosen], rows[chosen]))]
        chosen = chosen[np.linspace(0, len(chosen) - 1, MAX_POINTS).round().astype(int)]
    return points.select(chosen), np.maximum(predicted_m[chosen], NEAREST_M)


def kernel(a: Array, b: Array) -> Array:
    """exp(-|a_i - b_j| / LENGTH), float64 [len(a), len(b)]."""
    distances: Array = np.abs(a[:, None] - b[None])
    return np.exp(-distances / LENGTH)


def without_outliers(covariance: Array, noise: Array, error: Array) -> Array:
    """The indices of the points that agree with the others.

    Each round predicts every point from the others that agreed in the round before, so a point
    that was taken for an outlier because of one may return. At least half of all stay.
    """
    agree = np.ones(len(error), bool)
    for _ in range(OUTLIER_ROUNDS):
        ignored = np.where(agree, noise, IGNORED)
        inverse = np.linalg.inv(covariance + np.diag(ignored))
        variance = 1 / np.diag(inverse)
        # Of a point's error as the others predict it, with the point's own noise.
        expected = np.maximum(variance - ignored, 0) + noise
        deviation = np.abs(inverse @ error * variance) / np.sqrt(expected)
        agreed, agree = agree, deviation <= max(OUTLIER, np.median(deviation))
        if (agree == agreed).all():
            break
    return np.flatnonzero(agree)


def field(depth_m: Array, place: Array, z: Array, weights: Array) -> Array:
    """The mean of the process at every pixel, float32 [H, W].

    Args:
        place: rows and columns of the points in units of the longer side, [2, N].
        z: log predicted depth of the points, [N].
        weights: of the points, [N].
    """
    height, width = depth_m.shape
    log_m = np.log(np.maximum(depth_m, np.float32(NEAREST_M)))
    nearest, farthest = float(log_m.min()), float(log_m.max())
    rows, columns, depths = GRID
    ends = (height - 1) / max(height, width), (width - 1) / max(height, width)
    by_row = kernel(np.linspace(0, ends[0], rows), place[0]) * weights
    by_column = kernel(np.linspace(0, ends[1], columns), place[1])
    by_depth = kernel(np.linspace(nearest, farthest, depths), z)
    # One matrix product: [depths * columns, N] by [N, rows].
    pairs = (by_depth[:, None] * by_column[None]).reshape(-1, len(z))
    grid = (pairs @ by_row.T).reshape(depths, columns, rows).transpose(0, 2, 1)
    grid = (SCALE**2 * weights.sum() + LOCAL**2 * grid).astype(np.float32)
    step = (farthest - nearest) / (depths - 1) or 1.0
    return interpolated(grid, (log_m - np.float32(nearest)) / np.float32(step))


def interpolated(grid: Array, level: Array) -> Array:
    """Trilinear values of a grid [depths, rows, columns] that covers a picture.

    Args:
        level: the place of each pixel along the first axis, float32 [H, W], 0 to depths - 1.
    """
    height, width = level.shape
    depths, rows, columns = grid.shape
    # The grid's levels lie one below the other in one picture, for OpenCV's bilinear `remap`.
    atlas = np.ascontiguousarray(grid.reshape(depths * rows, columns))
    x = np.linspace(0, columns - 1, width, dtype=np.float32)
    y = np.linspace(0, rows - 1, height, dtype=np.float32)
    x, y = np.broadcast_to(x, level.shape).copy(), np.broadcast_to(y[:, None], level.shape)
    below = np.minimum(np.floor(level), depths - 2)
    parts = [
        cv2.remap(atlas, x, (y + one * rows).astype(np.float32), cv2.INTER_LINEAR)
        for one in (below, below + 1)
    ]
    share = level - below
    found: Array = parts[0] + (parts[1] - parts[0]) * share
    return found
