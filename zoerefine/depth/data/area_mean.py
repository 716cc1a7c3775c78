"""Area means of batches on a device. TorchScript compiles these functions into shipped modules."""

import torch
import torch.nn.functional as F
from torch import Tensor

from zoerefine.depth.data.depth_codec import VALID_SHARE


def area_mean(values: Tensor, size: list[int]) -> Tensor:
    """Mean over the area of each new pixel: [B, C, H, W] to [B, C, *size]."""
    return F.interpolate(values, size, mode="area")


# The constant is a default value, because TorchScript sees no globals.
def valid_area_mean(depth_m: Tensor, size: list[int], valid_share: float = VALID_SHARE) -> Tensor:
    """Mean over the *valid* area (depth above 0) of each new pixel: [B, 1, H, W] to [B, 1, *size].

    A new pixel is invalid (0) where less than half of its area was valid. `depth_codec` has the
    same rule for uint16 arrays.
    """
    share = area_mean((depth_m > 0).to(torch.float32), size)
    mean = area_mean(depth_m, size) / share.clamp(min=1e-6)
    return torch.where(share >= valid_share, mean, torch.zeros_like(mean))
