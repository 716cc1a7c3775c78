"""Metric points around an engine: what it gets for them, and what they still say of its output.

The number of points does not matter to an engine. Its inputs are pictures of one shape. Importing
this file does not import torch; a frame with points does.
"""

from typing import TYPE_CHECKING

import numpy as np

from zoerefine.depth.data.depth_codec import ZOE_UNIT_M, ZOEDEPTH
from zoerefine.depth.data.metric_points import MetricPoints
from zoerefine.depth.exporting import SPREAD_UNITS

if TYPE_CHECKING:
    from torch import Tensor

VERSION = "points 1"  # changes when depth or spread by points change: kept results are made again

# Of pseudo depth, in log depth: of a pixel's error in 14 recordings of benchmarks/points.py, of the
# same weight, the 90% quantile.
WITHOUT_POINTS = 0.85

Array = np.ndarray


def hinted(rgb_u8: Array, zoe_u16: Array, points: MetricPoints) -> tuple[Array, Array]:
    """The inputs of an engine that takes points.

    Args:
        rgb_u8: uint8 [H, W, 3].
        zoe_u16: pseudo depth, uint16 [H, W], metres * 256.

    Returns:
        The picture with `hints01` in bytes as more channels, uint8 [H, W, 3 + HINTS], and the
        pseudo depth corrected by the points, uint16 [H, W]. Without points it is the same.
    """
    from zoerefine.depth.points.spread import spread_with_hints

    corrected_m, hints01 = spread_with_hints(*tensors(zoe_u16, points))
    hints_u8 = (hints01[0] * 255).round().byte().permute(1, 2, 0).numpy()
    return np.concatenate([rgb_u8, hints_u8], 2), encoded(corrected_m[0, 0].numpy(), zoe_u16)


def points_alone_u16(zoe_u16: Array, points: MetricPoints) -> Array:
    """Pseudo depth that points alone correct, as `zoerefine infer --points` without a refiner."""
    from zoerefine.depth.points.spread import spread

    once_m = spread(*tensors(zoe_u16, points))[0, 0].numpy()
    return corrected(encoded(once_m, zoe_u16), points)


def corrected(refined_u16: Array, points: MetricPoints) -> Array:
    """An engine's output, corrected by what the points still say of it.

    A valid pixel with a point of sigma 0 gets that point's depth.
    """
    from zoerefine.depth.points.spread import exact, spread

    corrected_m = spread(*tensors(refined_u16, points))[0, 0].numpy()
    return encoded(exact(corrected_m, points), refined_u16)


def spread_u16(depth_u16: Array, points: MetricPoints, own_u16: Array | None = None) -> Array:
    """The spread of depth that points correct, uint16 [H, W] in log depth * 10000.

    Args:
        depth_u16: what they are first spread over. At an invalid pixel the spread is 0.
        own_u16: the spread where no point can be used; default: that of pseudo depth.
    """
    depth, rows = tensors(depth_u16, points)
    if not rows.shape[1]:
        return spread_without_points(depth_u16) if own_u16 is None else own_u16
    from zoerefine.depth.points.band import band

    return encoded_spread(band(depth, rows)[0, 0].numpy(), depth_u16)


def spread_without_points(depth_u16: Array) -> Array:
    """The spread of pseudo depth of which nothing is known, uint16 [..., H, W]."""
    return encoded_spread(np.full(depth_u16.shape, WITHOUT_POINTS), depth_u16)


def encoded_spread(spread: Array, depth_u16: Array) -> Array:
    """Spread in log depth * 10000, above 0 at valid pixels and 0 at the others."""
    values = np.minimum(np.rint(spread * np.float32(SPREAD_UNITS)), 65535)
    return np.where(depth_u16 > 0, np.maximum(values, 1), 0).astype(np.uint16)


def tensors(depth_u16: Array, points: MetricPoints) -> "tuple[Tensor, Tensor]":
    """Depth in metres [1, 1, H, W] and points [1, N, 4], as `spread` takes them."""
    import torch

    from zoerefine.depth.points.spread import tensor_of

    depth_m = depth_u16 * np.float32(ZOE_UNIT_M)
    return torch.from_numpy(depth_m)[None, None], tensor_of(points, depth_m)


def encoded(corrected_m: Array, depth_u16: Array) -> Array:
    """Corrected depth [H, W] in metres * 256; a pixel that was valid stays valid."""
    found: Array = np.maximum(ZOEDEPTH.encode(corrected_m), depth_u16 > 0)
    return found
