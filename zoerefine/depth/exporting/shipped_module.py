"""The module that a bundle ships: the refiner with its pre- and post-processing.

It takes pictures as they are read and returns depth in the units of ZoeDepth's files, and the
confidence of depth if the refiner has it. Unit conversion, resizing to the training size and
resizing back are inside, so that a robot's program cannot get them wrong.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.depth.data.area_mean import area_mean, valid_area_mean
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting.outputs import SPREAD_UNITS
from zoerefine.depth.model import RefinerNetwork

UNKNOWN_SPREAD = 65535.0  # the largest value: where no pixel around was valid for the core


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
        # TorchScript cannot read globals.
        self.unit_m = ZOE_UNIT_M
        self.spread_units = SPREAD_UNITS
        self.unknown_spread = UNKNOWN_SPREAD

    @torch.jit.export
    def before(self, rgb_u8: Tensor, zoe_u16: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 [B, H, W, C], uint16 [B, H, W] to rgb01 [B, C, h, w] and zoe_m [B, 1, h, w].

        The C channels are RGB and, of a refiner that takes metric points, `hints01` in bytes.
        """
        size = [self.height, self.width]
        rgb01 = rgb_u8.permute(0, 3, 1, 2).to(torch.float32) / 255.0  # [B, C, H, W]
        zoe_m = floats(zoe_u16).unsqueeze(1) * self.unit_m  # [B, 1, H, W]
        if not self.resizes([zoe_m.size(2), zoe_m.size(3)]):
            return rgb01.contiguous(), zoe_m
        return area_mean(rgb01, size), valid_area_mean(zoe_m, size)

    @torch.jit.export
    def after(
        self, zoe_u16: Tensor, core_zoe_m: Tensor, core_outputs: list[Tensor]
    ) -> list[Tensor]:
        """The core's input depth and its outputs, [B, 1, h, w], to outputs uint16 [B, H, W].

        The outputs are depth in metres and, if the refiner has confidence, spread in log depth.
        """
        zoe_m = floats(zoe_u16).unsqueeze(1) * self.unit_m
        size = [zoe_m.size(2), zoe_m.size(3)]
        resized = self.resizes(size)
        refined_m = core_outputs[0]
        if resized:
            refined_m = zoe_m * resized_factor(core_zoe_m, refined_m, size)
        outputs = [rounded_u16(refined_m / self.unit_m)]
        if len(core_outputs) > 1:
            units = core_outputs[1] * self.spread_units
            if resized:
                units = resized_if_valid(units, core_zoe_m > 0, size, self.unknown_spread)
                units = torch.where(zoe_m > 0, units, torch.zeros_like(units))
            outputs.append(rounded_u16(units))
        return outputs

    def resizes(self, size: list[int]) -> bool:
        """Whether pictures of this size are not of the core's."""
        return size != [self.height, self.width]


class ShippedModule(nn.Module):
    """Pictures uint8 [B, H, W, C] and depth uint16 [B, H, W] in metres * 256 to a list of outputs.

    The outputs are uint16 [B, H, W]: refined depth in metres * 256 and, with confidence, spread in
    log depth * 10000.

    `core` refines (rgb01 [B, C, h, w], zoe_m [B, 1, h, w]) to depth_m [B, 1, h, w]; with confidence
    to depth_m and spread, both [B, 1, h, w].
    """

    has_confidence: Final[bool]  # TorchScript compiles only one of the branches

    def __init__(
        self, core: nn.Module, height: int, width: int, has_confidence: bool = False
    ) -> None:
        super().__init__()
        self.core = core
        self.processing = PrePostProcessing(height, width)
        self.has_confidence = has_confidence

    def forward(self, rgb_u8: Tensor, zoe_u16: Tensor) -> list[Tensor]:
        rgb01, zoe_m = self.processing.before(rgb_u8, zoe_u16)
        if self.has_confidence:
            depth_m, spread = self.core(rgb01, zoe_m)
            return self.processing.after(zoe_u16, zoe_m, [depth_m, spread])
        return self.processing.after(zoe_u16, zoe_m, [self.core(rgb01, zoe_m)])


class DepthAndSpread(nn.Module):
    """A refiner with confidence, as a module whose `forward` returns both: engines are traced."""

    def __init__(self, refiner: RefinerNetwork) -> None:
        super().__init__()
        self.refiner = refiner

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> tuple[Tensor, Tensor]:
        return self.refiner.refine(rgb01, zoe_m)


def core_of(refiner: RefinerNetwork) -> nn.Module:
    """A refiner as a core of `ShippedModule`, with all its outputs, in evaluation mode."""
    return DepthAndSpread(refiner).eval() if refiner.has_confidence else refiner


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
    """refined / zoe of [B, 1, h, w] at another size [B, 1, H, W]; 1 where none is valid around."""
    factor = refined_m / zoe_m.clamp(min=1e-3)
    return resized_if_valid(factor, zoe_m > 0, size, 1.0)


def resized_if_valid(values: Tensor, valid: Tensor, size: list[int], otherwise: float) -> Tensor:
    """Values [B, 1, h, w] at another size [B, 1, H, W], interpolated between valid pixels only.

    `otherwise` where no pixel around is valid.
    """
    values = torch.where(valid, values, torch.zeros_like(values))
    mean = F.interpolate(values, size, mode="bilinear", align_corners=False)
    weight = F.interpolate(valid.to(torch.float32), size, mode="bilinear", align_corners=False)
    return torch.where(weight > 0, mean / weight.clamp(min=1e-6), torch.full_like(mean, otherwise))
