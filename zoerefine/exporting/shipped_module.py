"""The module that a bundle ships: the refiner with its pre- and post-processing.

It takes pictures as they are read and returns depth in the units of ZoeDepth's files. Unit
conversion, resizing to the training size and resizing back are inside, so that a robot's program
cannot get them wrong.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.data.area_mean import area_mean, valid_area_mean
from zoerefine.data.depth_codec import ZOE_UNIT_M


class PrePostProcessing(nn.Module):
    """Pre- and post-processing for a core that refines at its training size only.

    Post-processing resizes the factor by which the core changes its input, not the refined depth:
    so details of the pseudo depth that are finer than the core's pixels are kept.

    An engine that is not TorchScript runs between `before` and `after`, so there is no `forward`.
    """

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height = height
        self.width = width
        self.unit_m = ZOE_UNIT_M  # TorchScript cannot read globals

    @torch.jit.export
    def before(self, rgb_u8: Tensor, zoe_u16: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 [B, H, W, 3], uint16 [B, H, W] to rgb01 [B, 3, h, w] and zoe_m [B, 1, h, w]."""
        size = [self.height, self.width]
        rgb01 = rgb_u8.permute(0, 3, 1, 2).to(torch.float32) / 255.0  # [B, 3, H, W]
        zoe_m = floats(zoe_u16).unsqueeze(1) * self.unit_m  # [B, 1, H, W]
        if [zoe_m.size(2), zoe_m.size(3)] == size:
            return rgb01.contiguous(), zoe_m
        return area_mean(rgb01, size), valid_area_mean(zoe_m, size)

    @torch.jit.export
    def after(self, zoe_u16: Tensor, core_zoe_m: Tensor, core_m: Tensor) -> Tensor:
        """The core's input and output depth [B, 1, h, w] to refined depth uint16 [B, H, W]."""
        zoe_m = floats(zoe_u16).unsqueeze(1) * self.unit_m
        size = [zoe_m.size(2), zoe_m.size(3)]
        refined_m = core_m
        if size != [self.height, self.width]:
            refined_m = zoe_m * resized_factor(core_zoe_m, core_m, size)
        return rounded_u16(refined_m / self.unit_m)


class ShippedModule(nn.Module):
    """RGB uint8 [B, H, W, 3] and depth uint16 [B, H, W] in metres * 256 to refined depth, the same.

    `core` refines (rgb01 [B, 3, h, w], zoe_m [B, 1, h, w]) to depth_m [B, 1, h, w].
    """

    def __init__(self, core: nn.Module, height: int, width: int) -> None:
        super().__init__()
        self.core = core
        self.processing = PrePostProcessing(height, width)

    def forward(self, rgb_u8: Tensor, zoe_u16: Tensor) -> Tensor:
        rgb01, zoe_m = self.processing.before(rgb_u8, zoe_u16)
        return self.processing.after(zoe_u16, zoe_m, self.core(rgb01, zoe_m))


def floats(values_u16: Tensor) -> Tensor:
    """uint16 as float32.

    By `copy_`: TorchScript's fuser for GPUs (NNC) takes `to` and `unsqueeze` of uint16 into its
    groups and then cannot compile them.
    """
    values = torch.empty(values_u16.shape, dtype=torch.float32, device=values_u16.device)
    return values.copy_(values_u16)


def rounded_u16(values: Tensor) -> Tensor:
    """float32 [B, 1, H, W] to the nearest uint16 [B, H, W]; by `copy_`, as in `floats`."""
    whole = values.round().clamp(0.0, 65535.0).squeeze(1).to(torch.int32)
    rounded = torch.empty(whole.shape, dtype=torch.uint16, device=whole.device)
    return rounded.copy_(whole)


def resized_factor(zoe_m: Tensor, refined_m: Tensor, size: list[int]) -> Tensor:
    """refined / zoe of [B, 1, h, w] at another size [B, 1, H, W].

    Interpolated between valid pixels only; 1 where no pixel around is valid.
    """
    valid = (zoe_m > 0).to(torch.float32)
    factor = torch.where(zoe_m > 0, refined_m / zoe_m.clamp(min=1e-3), torch.zeros_like(zoe_m))
    factor = F.interpolate(factor, size, mode="bilinear", align_corners=False)
    weight = F.interpolate(valid, size, mode="bilinear", align_corners=False)
    return torch.where(weight > 0, factor / weight.clamp(min=1e-6), torch.ones_like(factor))
