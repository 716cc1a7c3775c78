"""The shipped module: pictures as they come in, refined depth as ZoeDepth's files have it.

Everything a robot would otherwise have to get right is inside: scales, resizing to the size that
the refiner was trained at, and bringing what it tells to the picture's own size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.data.area_mean import area_mean, valid_area_mean
from zoerefine.data.depth_codec import ZOE_UNIT_M


class PrePostProcessing(nn.Module):
    """What stands before and after a core that refines at the one size it was trained at.

    What is brought to the picture's own size is the factor by which the core changes its input, not
    the depth that it tells: what the pseudo depth shows finer than the core's pixels is kept. An
    engine that is no TorchScript stands between the two; `forward` is not defined for such a file.
    """

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height = height
        self.width = width
        self.unit_m = ZOE_UNIT_M  # TorchScript sees no globals

    @torch.jit.export
    def before(self, rgb_u8: Tensor, zoe_u16: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 [B, H, W, 3], uint16 [B, H, W] to rgb01 [B, 3, h, w] and zoe_m [B, 1, h, w]."""
        size = [self.height, self.width]
        rgb01 = rgb_u8.permute(0, 3, 1, 2).to(torch.float32) / 255.0  # [B, 3, H, W]
        zoe_m = zoe_u16.unsqueeze(1).to(torch.float32) * self.unit_m  # [B, 1, H, W]
        if [zoe_m.size(2), zoe_m.size(3)] == size:
            return rgb01.contiguous(), zoe_m
        return area_mean(rgb01, size), valid_area_mean(zoe_m, size)

    @torch.jit.export
    def after(self, zoe_u16: Tensor, core_zoe_m: Tensor, core_m: Tensor) -> Tensor:
        """The core's input and output depth [B, 1, h, w] to refined uint16 [B, H, W]."""
        zoe_m = zoe_u16.unsqueeze(1).to(torch.float32) * self.unit_m
        own = [zoe_m.size(2), zoe_m.size(3)]
        refined_m = core_m
        if own != [self.height, self.width]:
            refined_m = zoe_m * mean_change(core_zoe_m, core_m, own)
        units = (refined_m / self.unit_m).round().clamp(0.0, 65535.0)
        return units.squeeze(1).to(torch.int32).to(torch.uint16)


class Shipped(nn.Module):
    """uint8 [B, H, W, 3] and uint16 [B, H, W] (metres * 256) to uint16 [B, H, W], the same units.

    `core` refines (rgb01 [B, 3, h, w], zoe_m [B, 1, h, w]) to depth_m [B, 1, h, w].
    """

    def __init__(self, core: nn.Module, height: int, width: int) -> None:
        super().__init__()
        self.core = core
        self.ends = PrePostProcessing(height, width)

    def forward(self, rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        rgb01, zoe_m = self.ends.before(rgb_u8, zoe_u16)
        return self.ends.after(zoe_u16, zoe_m, self.core(rgb01, zoe_m))


def mean_change(zoe_m: Tensor, refined_m: Tensor, size: list[int]) -> Tensor:
    """refined / zoe [B, 1, h, w] at another size, interpolated between measured pixels alone; 1
    where there is none around."""
    measured = (zoe_m > 0).to(torch.float32)
    change = torch.where(zoe_m > 0, refined_m / zoe_m.clamp(min=1e-3), torch.zeros_like(zoe_m))
    change = F.interpolate(change, size, mode="bilinear", align_corners=False)
    share = F.interpolate(measured, size, mode="bilinear", align_corners=False)
    return torch.where(share > 0, change / share.clamp(min=1e-6), torch.ones_like(change))
