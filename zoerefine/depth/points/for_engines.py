"""Metric points around an engine: what it gets for them, and what they still say of its output.

The number of points does not matter to an engine. Its inputs are pictures of one shape. Importing
this file does not import torch; a frame with points does.
"""

from typing import TYPE_CHECKING

import numpy as np

from zoerefine.depth.data.depth_codec import ZOE_UNIT_M, ZOEDEPTH
from zoerefine.depth.data.metric_points import MetricPoints

if TYPE_CHECKING:
    from torch import Tensor

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
    return np.concatenate([rgb_u8, hints_u8], 2), encoded(corrected_m, zoe_u16)


def points_alone_u16(zoe_u16: Array, points: MetricPoints) -> Array:
    """Pseudo depth that points alone correct, as `zoerefine infer --points` without a refiner."""
    return corrected(corrected(zoe_u16, points), points)


def corrected(refined_u16: Array, points: MetricPoints) -> Array:
    """An engine's output, corrected by what the points still say of it."""
    from zoerefine.depth.points.spread import spread

    return encoded(spread(*tensors(refined_u16, points)), refined_u16)


def tensors(depth_u16: Array, points: MetricPoints) -> "tuple[Tensor, Tensor]":
    """Depth in metres [1, 1, H, W] and points [1, N, 4], as `spread` takes them."""
    import torch

    from zoerefine.depth.points.spread import tensor_of

    depth_m = depth_u16 * np.float32(ZOE_UNIT_M)
    return torch.from_numpy(depth_m)[None, None], tensor_of(points, depth_m)


def encoded(corrected_m: "Tensor", depth_u16: Array) -> Array:
    """Corrected depth [1, 1, H, W] in metres * 256; a pixel that was valid stays valid."""
    found: Array = np.maximum(ZOEDEPTH.encode(corrected_m[0, 0].numpy()), depth_u16 > 0)
    return found
