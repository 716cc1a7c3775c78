"""The shipped module: pictures as they come in, refined depth as ZoeDepth's files have it.

Everything a robot would otherwise have to get right is inside: scales, resizing to the size that
the refiner was trained at, and taking its correction back to the picture's own size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ZOE_UNITS = 256.0  # of the 16-bit depths, a metre


class Ends(nn.Module):
    """What stands before and after a core that refines at the one size it was trained at.

    The core's correction, a factor, is smooth; so it is that, and not the depth, which is brought
    to the picture's own size: edges stay as sharp as they came. An engine that is no TorchScript
    stands between the two; `forward` is not defined for such a file.
    """

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height = height
        self.width = width
        self.units = ZOE_UNITS  # TorchScript sees no globals

    @torch.jit.export
    def before(self, rgb_u8: Tensor, zoe_u16: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 [B, H, W, 3], uint16 [B, H, W] to rgb01 [B, 3, h, w] and zoe_m [B, 1, h, w]."""
        size = [self.height, self.width]
        rgb01 = rgb_u8.permute(0, 3, 1, 2).to(torch.float32) / 255.0  # [B, 3, H, W]
        zoe_m = zoe_u16.unsqueeze(1).to(torch.float32) / self.units  # [B, 1, H, W]
        if [zoe_m.size(2), zoe_m.size(3)] == size:
            return rgb01.contiguous(), zoe_m
        return area_mean(rgb01, size), mean_of_measured(zoe_m, size)

    @torch.jit.export
    def after(self, zoe_u16: Tensor, core_zoe_m: Tensor, core_m: Tensor) -> Tensor:
        """The core's input and output depth [B, 1, h, w] to refined uint16 [B, H, W]."""
        zoe_m = zoe_u16.unsqueeze(1).to(torch.float32) / self.units
        own = [zoe_m.size(2), zoe_m.size(3)]
        refined_m = core_m
        if own != [self.height, self.width]:
            change = core_m / core_zoe_m.clamp(min=1e-3)
            change = torch.where(core_zoe_m > 0, change, torch.ones_like(change))
            refined_m = zoe_m * F.interpolate(change, own, mode="bilinear", align_corners=False)
        units = (refined_m * self.units).round().clamp(0.0, 65535.0)
        return units.squeeze(1).to(torch.int32).to(torch.uint16)


class Shipped(nn.Module):
    """uint8 [B, H, W, 3] and uint16 [B, H, W] (metres * 256) to uint16 [B, H, W], the same units.

    `core` refines (rgb01 [B, 3, h, w], zoe_m [B, 1, h, w]) to depth_m [B, 1, h, w].
    """

    def __init__(self, core: nn.Module, height: int, width: int) -> None:
        super().__init__()
        self.core = core
        self.ends = Ends(height, width)

    def forward(self, rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        rgb01, zoe_m = self.ends.before(rgb_u8, zoe_u16)
        return self.ends.after(zoe_u16, zoe_m, self.core(rgb01, zoe_m))


def area_mean(values: Tensor, size: list[int]) -> Tensor:
    """Mean over the area of each new pixel."""
    return F.interpolate(values, size, mode="area")


def mean_of_measured(depth_m: Tensor, size: list[int]) -> Tensor:
    """Area mean of [B, 1, H, W] over measured pixels; 0 where less than half was measured."""
    measured = (depth_m > 0).to(torch.float32)
    share = area_mean(measured, size)
    mean = area_mean(depth_m, size) / share.clamp(min=1e-6)
    return torch.where(share >= 0.5, mean, torch.zeros_like(mean))
