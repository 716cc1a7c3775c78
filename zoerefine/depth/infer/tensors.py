"""Tensors: what `Refiner` is given stays on its device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.base.errors import UserError
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting import SPREAD_UNITS

UNITS = ZOE_UNIT_M, 1 / SPREAD_UNITS  # of an engine's outputs: metres and log depth
LARGEST = 65535


def as_tensor(values: Any) -> Tensor:
    """A tensor of a tensor, a NumPy array, or an array of another library, without a copy.

    Only an array that cannot be written to is copied: torch warns of it. DLPack lets the library's
    stream wait where that is needed. Raises `UserError` for what is none.
    """
    if isinstance(values, Tensor):
        if values.is_nested or values.layout != torch.strided:
            raise UserError("rgb and zoe must be dense tensors: call to_dense() or stack them")
        return values.detach()
    if isinstance(values, np.ndarray):
        return torch.from_numpy(np.require(values, None, ["C", "W"]))
    try:
        tensor: Tensor = torch.from_dlpack(values)
    except (RuntimeError, TypeError, AttributeError, BufferError):
        name = type(values).__name__
        raise UserError(f"rgb and zoe must be arrays or tensors, got {name}") from None
    return tensor


def batch_of_tensors(rgb_u8: Tensor, depth: Tensor) -> tuple[Tensor, Tensor]:
    """uint8 [..., H, W, 3] and depth [..., H, W] as uint8 [B, H, W, 3] and uint16 [B, H, W]."""
    height, width = depth.shape[-2:]
    zoe_u16 = depth if depth.dtype == torch.uint16 else encode(depth)
    return rgb_u8.reshape(-1, height, width, 3), zoe_u16.reshape(-1, height, width)


def encode(depth_m: Tensor) -> Tensor:
    """Metres as uint16, as `depth_codec.ZOEDEPTH.encode` does for arrays."""
    wide = torch.promote_types(depth_m.dtype, torch.float32)  # half does not reach 65535
    finite_m = torch.where(depth_m.isfinite(), depth_m, 0.0).to(wide)
    values = (finite_m / ZOE_UNIT_M).round().clamp(0, LARGEST)
    return values.to(torch.int32).to(torch.uint16)


def outputs_like(depth: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
    """Outputs uint16 [B, H, W] in the shape and on the device of `depth`.

    Where `depth` is floats, float32 in metres and in log depth.
    """
    shaped = [output.reshape(depth.shape).to(depth.device) for output in outputs]
    if depth.dtype == torch.uint16:
        return shaped
    return [output.float() * unit for output, unit in zip(shaped, UNITS, strict=False)]
