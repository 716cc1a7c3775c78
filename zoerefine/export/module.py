"""The shipped module: pictures as they come in, refined depth as ZoeDepth's files have it.

Everything a robot would otherwise have to get right is inside: scales, resizing to the size that
the refiner was trained at, and taking its correction back to the picture's own size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ZOE_UNITS = 256.0  # of the 16-bit depths, a metre


class Shipped(nn.Module):
    """uint8 [B, H, W, 3] and uint16 [B, H, W] (metres * 256) to uint16 [B, H, W], the same units.

    `core` refines (rgb01 [B, 3, h, w], zoe_m [B, 1, h, w]) at the one size that it was trained
    at. Its correction, a factor, is smooth; so it is that, and not the depth, which is brought to
    the picture's own size: edges stay as sharp as they came.
    """

    def __init__(self, core: nn.Module, height: int, width: int) -> None:
        super().__init__()
        self.core = core
        self.height = height
        self.width = width
        self.units = ZOE_UNITS  # TorchScript sees no globals

    def forward(self, rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        size = [self.height, self.width]
        rgb01 = rgb_u8.permute(0, 3, 1, 2).to(torch.float32) / 255.0  # [B, 3, H, W]
        zoe_m = zoe_u16.unsqueeze(1).to(torch.float32) / self.units  # [B, 1, H, W]
        own = [zoe_m.size(2), zoe_m.size(3)]
        if own == size:
            refined_m = self.core(rgb01, zoe_m)
        else:
            small_rgb01 = area_mean(rgb01, size)
            small_m = mean_of_measured(zoe_m, size)
            change = self.core(small_rgb01, small_m) / small_m.clamp(min=1e-3)
            change = torch.where(small_m > 0, change, torch.ones_like(change))
            refined_m = zoe_m * F.interpolate(change, own, mode="bilinear", align_corners=False)
        units = (refined_m * self.units).round().clamp(0.0, 65535.0)
        return units.squeeze(1).to(torch.int32).to(torch.uint16)


class Typed(nn.Module):
    """A backbone that computes in another number format between float32 ends."""

    def __init__(self, backbone: nn.Module, stride: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.stride = stride
        self.inner = backbone.to(dtype)
        self.dtype = dtype

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        local, scale = self.inner(inputs.to(self.dtype))
        return local.float(), scale.float()


def area_mean(values: Tensor, size: list[int]) -> Tensor:
    """Mean over the area of each new pixel."""
    return F.interpolate(values, size, mode="area")


def mean_of_measured(depth_m: Tensor, size: list[int]) -> Tensor:
    """Area mean of [B, 1, H, W] over measured pixels; 0 where less than half was measured."""
    measured = (depth_m > 0).to(torch.float32)
    share = area_mean(measured, size)
    mean = area_mean(depth_m, size) / share.clamp(min=1e-6)
    return torch.where(share >= 0.5, mean, torch.zeros_like(mean))
