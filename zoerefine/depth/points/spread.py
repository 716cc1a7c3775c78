"""Spread what a few metric points say over a whole picture, without any training.

`gaussian_process.py` says which process it is. Its mean at a pixel is a weighted sum over the
points (Rasmussen and Williams, Gaussian Processes for Machine Learning, eq. 2.25). The kernel is a
product over x, y and z, so it is computed on a coarse grid over the three by matrix products, and
interpolated at the pixels. A point does not count if it is an outlier: if it differs by more than
OUTLIER standard deviations from what the others predict for it (leave-one-out, eq. 5.12).

Points are spread twice: what they still say of the corrected depth is spread again ("twicing",
Tukey 1977, Exploratory Data Analysis, ch. 16). With a refiner that takes points, the refiner is
between the two.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoerefine.base.errors import UserError
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.depth_unit import refuse_points_in_other_unit
from zoerefine.depth.data.metric_points import MetricPoints, thinned
from zoerefine.depth.points import CHANGE_UNITS, NO_CHANGE
from zoerefine.depth.points.gaussian_process import (
    LOCAL,
    NEAREST_M,
    SCALE,
    Process,
    at_points,
    kernel,
)

GRID = 24, 32, 16  # rows, columns, depths
KNOWN_LENGTH = 0.1  # of the longer side: how far a point makes depth known
KNOWN_POINTS = 255  # as many at one place make what is known 1
NEAR_LENGTH = 0.025  # of the longer side: standard deviation of a point's surroundings
NEAR_POINTS = 2  # as many at one place make `near01` 1
NEAR_FLOOR = 0.1  # far from all points nothing is left to say
OUTLIER = 2.5  # chosen as the constants of gaussian_process.py
OUTLIER_ROUNDS = 3

Array = np.ndarray


def spread_points(depth_m: Array, points: MetricPoints) -> Array:
    """Correct predicted depth by metric points.

    Args:
        depth_m: float [H, W], metres. Pixels that are 0, negative, non-finite or masked are
            invalid; they are 0 in the result.
        points: those at invalid pixels or outside the picture, and those with a value that is not
            finite, are not used. Without points the depth stays as it is. A valid pixel with a
            point of sigma 0 gets that point's depth.

    Returns:
        Corrected depth, float32 [H, W], metres.

    Raises:
        UserError: depth of another type or shape, a negative sigma, or points in another unit than
            metres.
    """
    depth_m = np.ma.filled(depth_m, 0)
    if depth_m.dtype.kind != "f" or depth_m.ndim != 2:
        raise UserError(
            f"depth_m is {depth_m.dtype} {list(depth_m.shape)}; give floats [H, W] in metres"
        )
    valid_m = np.where(np.isfinite(depth_m) & (depth_m > 0), depth_m, 0).astype(np.float32)
    refuse_points_in_other_unit("metric points", points, valid_m / ZOE_UNIT_M)
    depth = torch.from_numpy(valid_m)[None, None]
    return exact(spread_twice(depth, tensor_of(points, valid_m))[0, 0].numpy(), points)


def tensor_of(points: MetricPoints, depth_m: Array) -> Tensor:
    """Points as `spread` takes them, float32 [1, N, 4]: at most MAX_POINTS where depth is valid."""
    height, width = depth_m.shape
    points = points.usable(height, width)
    used = thinned(points.select(depth_m[points.pixels(height, width)] > 0))
    values = np.stack([used.x, used.y, used.depth_m, used.known_sigma_m()], 1)
    return torch.from_numpy(values.astype(np.float32))[None]


def exact(depth_m: Array, points: MetricPoints) -> Array:
    """Depth, float32 [H, W] metres, with that of points of sigma 0 at their pixels."""
    known = points.usable(*depth_m.shape)
    known = known.select(known.sigma_m == 0)
    rows, columns = known.pixels(*depth_m.shape)
    depth_m[rows, columns] = np.where(depth_m[rows, columns] > 0, known.depth_m, 0)
    return depth_m


def spread_twice(depth_m: Tensor, points: Tensor) -> Tensor:
    """Depth [B, 1, H, W] corrected by points alone, as `spread` takes and returns them."""
    return spread(spread(depth_m, points), points)


@torch.no_grad()
def spread(depth_m: Tensor, points: Tensor) -> Tensor:
    """Correct predicted depth by metric points, once.

    Args:
        depth_m: float32 [B, 1, H, W], metres; 0 marks an invalid pixel and stays 0.
        points: float32 [B, N, 4]: x, y, metres and sigma of each point. One with 0 metres is
            absent. A picture without points keeps its depth bit for bit.

    Returns:
        Corrected depth, float32 [B, 1, H, W].
    """
    if not points.shape[1]:
        return depth_m
    process = Process.of(depth_m, points)
    return depth_m * change_of(depth_m, process, agreeing(process)).exp()


@torch.no_grad()
def spread_with_hints(depth_m: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """`spread`, and what a refiner sees beside the picture: `hints01` [B, HINTS, H, W]."""
    if not points.shape[1]:
        return depth_m, no_hints(depth_m)
    process = Process.of(depth_m, points)
    agree = agreeing(process)
    change = change_of(depth_m, process, agree)
    corrected_m = depth_m * change.exp()
    x, y, metres, _ = process.points.unbind(-1)
    predicted_m = at_points(corrected_m, x, y).clamp(min=NEAREST_M)
    left = metres.clamp(min=1e-9).log() - predicted_m.log()
    near01, left_nearby = nearby(depth_m, process, left)
    return corrected_m, hints_of(known(depth_m, process, agree), change, near01, left_nearby)


def hints_of(known01: Tensor, change: Tensor, near01: Tensor, left: Tensor) -> Tensor:
    """`hints01`: what points say at a pixel, in 0..1, as bytes hold it.

    Args:
        known01: how much they say, by the number of points nearby that agree, 0..1.
        change: of log depth, as they were spread.
        near01: how near the next points are, 0..1.
        left: mean of what points nearby still say of the corrected log depth, -1..1.
    """
    signed = [(NO_CHANGE + units * one) / 255 for one, units in zip(
        (change, left), CHANGE_UNITS, strict=True
    )]  # fmt: skip
    return torch.cat([known01, signed[0], near01, signed[1]], 1).clamp(0, 1)


def no_hints(depth_m: Tensor) -> Tensor:
    """`hints01` of pictures without points."""
    zeros = torch.zeros_like(depth_m)
    return hints_of(zeros, zeros, zeros, zeros)


def change_of(depth_m: Tensor, process: Process, agree: Tensor) -> Tensor:
    """The change of log depth at every pixel, float32 [B, 1, H, W]: the mean of the process.

    Args:
        agree: which of its points count, bool [B, N].
    """
    weights = process.weights(agree)
    of_rows, of_columns = grid_places(depth_m)
    of_depths, level = depth_levels(depth_m, GRID[2])
    by_row = kernel(of_rows, process.rows) * weights[:, None]
    by_column = kernel(of_columns, process.columns)
    by_depth = kernel(of_depths, process.log_m)
    # One matrix product: [depths * columns, N] by [N, rows].
    together = (by_depth[:, :, None] * by_column[:, None]).flatten(1, 2) @ by_row.transpose(1, 2)
    grid = together.unflatten(1, (GRID[2], GRID[1])).transpose(2, 3)
    grid = (SCALE**2 * weights.sum(1)[:, None, None, None] + LOCAL**2 * grid).float()
    return interpolated(grid, level)


def depth_levels(depth_m: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log depths of a grid, float64 [B, count], and the place of each pixel on it, [B, H, W]."""
    of_pixels = depth_m[:, 0].clamp(min=NEAREST_M).log()
    nearest, farthest = of_pixels.amin((1, 2)), of_pixels.amax((1, 2))
    steps = torch.linspace(0, 1, count, dtype=torch.float64, device=depth_m.device)
    of_depths = nearest[:, None] + (farthest - nearest)[:, None] * steps
    range_of_log = (farthest - nearest).clamp(min=1e-9)[:, None, None]
    return of_depths, (of_pixels - nearest[:, None, None]) / range_of_log


def grid_places(depth_m: Tensor, counts: Sequence[int] = GRID) -> tuple[Tensor, Tensor]:
    """Rows and columns of a grid in units of the longer side, float64."""
    height, width = depth_m.shape[2:]
    ends = (height - 1) / max(height, width), (width - 1) / max(height, width)
    found = [
        torch.linspace(0, end, count, dtype=torch.float64, device=depth_m.device)
        for end, count in zip(ends, counts, strict=False)
    ]
    return found[0], found[1]


def interpolated(grid: Tensor, level: Tensor) -> Tensor:
    """Trilinear values of a grid [B, depths, rows, columns] that covers a picture, [B, 1, H, W].

    Args:
        level: the place of each pixel along the first axis, float32 [B, H, W], 0 to 1.
    """
    height, width = level.shape[1:]
    depths, columns = grid.shape[1], grid.shape[3]
    by_row = grid.transpose(1, 2).flatten(2).transpose(1, 2)  # [B, depths * columns, rows]
    by_row = F.interpolate(by_row, height, mode="linear", align_corners=True)
    # All rows of the picture are one grid over depth and columns: two axes are several times
    # faster than three. A place of one row never reaches the depths of the next.
    stacked = by_row.transpose(1, 2).reshape(-1, 1, height * depths, columns)
    step = 2 / (height * depths - 1)  # of a depth; the grid reaches from -1 to 1
    first = torch.arange(height, dtype=torch.float64, device=level.device) * (depths * step) - 1
    at = level.new_empty(*level.shape, 2)
    at[..., 0] = torch.linspace(-1, 1, width, dtype=torch.float32, device=level.device)
    at[..., 1] = torch.add(first.float()[:, None], level, alpha=(depths - 1) * step)
    return F.grid_sample(stacked, at, padding_mode="border", align_corners=True)


def known(depth_m: Tensor, process: Process, agree: Tensor) -> Tensor:
    """How much the points say at a pixel, float32 [B, 1, H, W] in 0..1; 0 without points."""
    of_rows, of_columns = grid_places(depth_m)
    by_row = kernel(of_rows, process.rows, KNOWN_LENGTH) * agree[:, None]
    nearby = by_row @ kernel(of_columns, process.columns, KNOWN_LENGTH).transpose(1, 2)
    share = (nearby.log1p() / math.log1p(KNOWN_POINTS)).clamp(max=1).float()[:, None]
    return F.interpolate(share, depth_m.shape[2:], mode="bilinear", align_corners=True)


def nearby(depth_m: Tensor, process: Process, left: Tensor) -> tuple[Tensor, Tensor]:
    """How near points are to a pixel, and the mean of what they say [B, N], clamped to -1..1.

    Points that were taken for outliers count, too: a network may know better.
    """
    height, width = depth_m.shape[2:]

    def closeness(count: int, at: Tensor) -> Tensor:  # [B, count, N]
        pixels = torch.arange(count, dtype=torch.float32, device=depth_m.device)
        pixels = pixels / max(height, width)
        distance = (pixels[None, :, None] - at.float()[:, None]) / NEAR_LENGTH
        return torch.exp(-distance.square() / 2)

    there = process.there
    by_row, by_column = closeness(height, process.rows), closeness(width, process.columns)
    values = torch.where(there, left.clamp(-1, 1), 0.0).float()
    weight = (by_row * there[:, None]) @ by_column.transpose(1, 2)
    total = (by_row * values[:, None]) @ by_column.transpose(1, 2)
    mean = total / (weight + NEAR_FLOOR)
    return (weight / NEAR_POINTS).clamp(max=1)[:, None], mean[:, None]


def agreeing(process: Process) -> Tensor:
    """The points that agree with the others, bool [B, N].

    Each round predicts every point from the others that agreed in the round before, so a point
    that was taken for an outlier because of one may return. At least half of all stay.
    """
    agree = process.there
    for _ in range(OUTLIER_ROUNDS):
        deviation = process.deviation(agree)
        median = nan_median(torch.where(process.there, deviation, torch.nan))
        agree = process.there & (deviation <= median.nan_to_num(0.0).clamp(min=OUTLIER))
    return agree


def nan_median(values: Tensor) -> Tensor:
    """The median [B, 1] of each row [B, N] without its NaN: `Tensor.nanmedian`, bit by bit.

    On a GPU torch has no deterministic one.
    """
    ordered = values.sort(1).values  # NaN come last
    middle = ((~ordered.isnan()).sum(1, keepdim=True) - 1) // 2
    return ordered.gather(1, middle.clamp(min=0))
