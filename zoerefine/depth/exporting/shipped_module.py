"""The module that a bundle ships: the refiner with its pre- and post-processing.

It takes pictures as they are read and returns depth in the units of ZoeDepth's files, and the
confidence of depth if the refiner has it. Unit conversion, resizing to the training size and
resizing back are inside, so that a robot's program cannot get them wrong.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.depth.data.area_mean import area_mean
from zoerefine.depth.data.depth_codec import VALID_SHARE, ZOE_UNIT_M
from zoerefine.depth.exporting import SPREAD_UNITS
from zoerefine.depth.model import RefinerNetwork

UNKNOWN_SPREAD = 65535.0  # the largest value: where no pixel around was valid for the core
NO_WEIGHT = 1e-12  # of invalid pixels: beside a valid one it is lost in rounding


class PrePostProcessing(nn.Module):
    """Pre- and post-processing for a core that refines at its training size only.

    Post-processing resizes the factor by which the core changes its input, not the refined depth:
    so details of the pseudo depth that are finer than the core's pixels are kept.

    A GPU takes longer to start each operation than to compute it on a picture. So fields that are
    treated alike are channels of one tensor: at most 25 operations for a call.

    An engine that is not TorchScript runs between `before` and `after`, so there is no `forward`.
    """

    unknown: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height = height
        self.width = width
        # TorchScript cannot read globals.
        self.unit_m = ZOE_UNIT_M
        self.spread_units = SPREAD_UNITS
        self.valid_share = VALID_SHARE
        values = [NO_WEIGHT, NO_WEIGHT, UNKNOWN_SPREAD * NO_WEIGHT]  # weight, factor 1, spread
        self.register_buffer("unknown", torch.tensor(values).view(1, 3, 1, 1))

    @torch.jit.export
    def before(self, rgb_u8: Tensor, zoe_u16: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 [B, H, W, C], uint16 [B, H, W] to rgb01 [B, C, h, w] and zoe_m [B, 1, h, w].

        The C channels are RGB and, of a refiner that takes metric points, `hints01` in bytes.
        A pixel of depth is the mean over its valid area, and invalid (0) if less than
        `VALID_SHARE` of it is valid, as `area_mean.valid_area_mean` has it.
        """
        batch, height, width, channels = rgb_u8.shape
        picture = rgb_u8.permute(0, 3, 1, 2)
        if not self.resizes([height, width]):
            planes = empty_like(list(picture.shape), rgb_u8).copy_(picture)
            return planes.div_(255.0), floats(zoe_u16).unsqueeze(1) * self.unit_m
        planes = empty_like([batch, channels + 2, height, width], rgb_u8)
        planes[:, :channels].copy_(picture)
        planes[:, channels].copy_(zoe_u16)
        torch.clamp(planes[:, channels], max=1.0, out=planes[:, channels + 1])  # 1 where valid
        means = area_mean(planes, [self.height, self.width])
        share = means[:, channels + 1 :]
        zoe_m = means[:, channels : channels + 1] * self.unit_m / share
        return means[:, :channels] / 255.0, zoe_m.masked_fill_(share < self.valid_share, 0.0)

    @torch.jit.export
    def after(
        self, zoe_u16: Tensor, core_zoe_m: Tensor, core_outputs: list[Tensor]
    ) -> list[Tensor]:
        """The core's input depth and its outputs, [B, 1, h, w], to outputs uint16 [B, H, W].

        The outputs are depth in metres and, if the refiner has confidence, spread in log depth.
        """
        size = [zoe_u16.size(1), zoe_u16.size(2)]
        if self.resizes(size):
            return rounded_u16(self.resized(zoe_u16, core_zoe_m, core_outputs))
        outputs = [core_outputs[0] / self.unit_m]
        if len(core_outputs) > 1:
            outputs.append(core_outputs[1] * self.spread_units)
        return rounded_u16(torch.cat(outputs, 1))

    def resized(self, zoe_u16: Tensor, core_zoe_m: Tensor, core_outputs: list[Tensor]) -> Tensor:
        """The outputs at the picture's size, in their units: [B, 1 or 2, H, W]."""
        batch, height, width = zoe_u16.shape
        count = len(core_outputs)
        # Weights and weighted values, to interpolate between valid pixels alone. An invalid pixel
        # has almost no weight: its values are used where no pixel around is valid.
        maps = [torch.ones_like(core_zoe_m), core_outputs[0] / core_zoe_m]
        # What the outputs are multiplied with; spread is 0 at invalid pixels.
        scales = empty_like([batch, count, height, width], zoe_u16)
        scales[:, 0].copy_(zoe_u16)
        if count > 1:
            maps.append(core_outputs[1] * self.spread_units)
            torch.clamp(scales[:, 0], max=1.0, out=scales[:, 1])
        weighted = torch.where(core_zoe_m > 0, torch.cat(maps, 1), self.unknown[:, : count + 1])
        weighted = F.interpolate(weighted, [height, width], mode="bilinear", align_corners=False)
        return scales.mul_(weighted[:, 1:] / weighted[:, :1])

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
    return empty_like(list(values_u16.shape), values_u16).copy_(values_u16)


def empty_like(shape: list[int], other: Tensor) -> Tensor:
    """float32 of any content, on the device of another tensor."""
    return torch.empty(shape, dtype=torch.float32, device=other.device)


def rounded_u16(values: Tensor) -> list[Tensor]:
    """float32 [B, N, H, W] to the nearest uint16, N times [B, H, W]; by `copy_`, as in `floats`."""
    whole = values.round().clamp(0.0, 65535.0).transpose(0, 1).to(torch.int32)
    rounded = torch.empty(whole.shape, dtype=torch.uint16, device=whole.device)
    return list(rounded.copy_(whole).unbind(0))
