"""The band around depth that metric points correct: the truth is inside at 90% of the pixels.

At a pixel its half-width in log depth is

    quantile * sqrt(variance of the process of `gaussian_process.py` + NOISE^2)

so it is narrow near points at a similar depth. The quantile is that of scores: how far each point
is from what points farther away predict for it, in the same standard deviations (leave-one-out
residuals as in Barber et al., Predictive inference with the jackknife+, 2021). Those that are
nearer to it than a pixel is to its nearest point, in the median, are left out together with it:
points in one row, or at the corners of one object, predict each other better than the rest of the
picture. `room.py` joins the scores with those of other rooms.
"""

import numpy as np
import torch
from torch import Tensor

from zoerefine.depth.points.gaussian_process import LOCAL, NOISE, SCALE, Process, kernel
from zoerefine.depth.points.room import quantile
from zoerefine.depth.points.spread import agreeing, depth_levels, grid_places, interpolated

GRID = 12, 16, 8  # rows, columns, depths where the variance is computed
OTHERS = 5.0  # as many points the scores of other rooms count
SCORED = 100  # points, at most
# Quantiles at 1/40, 3/40, ... of the scores of pixels, mean over the 14 recordings of
# benchmarks/points.py, with 5 points a frame.
OTHER_SCORES = np.array([
    0.03, 0.08, 0.13, 0.19, 0.25, 0.31, 0.38, 0.45, 0.53, 0.62,
    0.71, 0.81, 0.93, 1.08, 1.24, 1.43, 1.68, 1.98, 2.40, 3.21,
])  # fmt: skip

Array = np.ndarray


def band(depth_m: Tensor, points: Tensor) -> Tensor:
    """Half the width of the band in log depth, float32 [1, 1, H, W].

    Args:
        depth_m: float32 [1, 1, H, W], metres, as points are first spread over it.
        points: float32 [1, N, 4], as `spread` takes them, N at least 1.
    """
    process = Process.of(depth_m, points)
    agree = agreeing(process)
    factor = quantile(scores(depth_m, process, agree), OTHER_SCORES, OTHERS)
    return factor * deviation(depth_m, process, agree)


def scores(depth_m: Tensor, process: Process, agree: Tensor) -> Array:
    """How far points are from what those farther away predict, in standard deviations.

    Of SCORED of them at most, without outliers.
    """
    chosen = agree[0]
    places = torch.stack([process.rows[0], process.columns[0]], 1)[chosen]
    pixels = torch.cartesian_prod(*grid_places(depth_m, GRID))
    near = torch.cdist(pixels, places).amin(1).median()
    precision = process.precision(agree)[0][chosen][:, chosen]
    told = precision @ process.error[0][chosen]
    found = []
    for one in np.unique(np.linspace(0, len(places) - 1, SCORED).round().astype(int)):
        left_out = torch.linalg.vector_norm(places - places[one], dim=1) <= near
        left_out[one] = True
        itself = (left_out.nonzero()[:, 0] == one).double()
        # Left out of a normal distribution by their block of the precision (Rasmussen and Williams,
        # section 5.4.2): a row of its inverse.
        row = torch.linalg.solve(precision[left_out][:, left_out], itself)
        found.append(float((row @ told[left_out]).abs() / (row @ itself).sqrt()))
    return np.array(found)


def deviation(depth_m: Tensor, process: Process, agree: Tensor) -> Tensor:
    """The standard deviation of log depth that the process expects at each pixel."""
    of_rows, of_columns = grid_places(depth_m, GRID)
    of_depths, level = depth_levels(depth_m, GRID[2])
    by_depth = kernel(of_depths, process.log_m)[:, :, None, None]
    by_row = kernel(of_rows, process.rows)[:, None, :, None]
    by_column = kernel(of_columns, process.columns)[:, None, None]
    alike = (by_depth * by_row * by_column).flatten(1, 3)  # [1, cells, N]
    covariance = (SCALE**2 + LOCAL**2 * alike) * agree[:, None]
    known = ((covariance @ process.precision(agree)) * covariance).sum(2)
    variance = (SCALE**2 + LOCAL**2 - known).clamp(min=0) + NOISE**2
    return interpolated(variance.sqrt().float().unflatten(1, GRID[2:] + GRID[:2]), level)
