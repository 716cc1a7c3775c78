"""The refiner: an estimate of metric depth, held near the pseudo depth, around any backbone.

    told = TYPICAL + backbone(rgb, log zoe_m, rows)  # log depth
    depth_m = zoe_m exp(clip(told - log zoe_m, -max_log, max_log))

The backbone tells log depth itself rather than a correction of the pseudo depth: a correction must
first undo whatever is wrong with the pseudo depth's scale and details, an estimate may take from
it what is right (benchmarks/quality.py). The bound makes it a correction all the same: nowhere is
the pseudo depth left by more than a factor. Before its first step of training a refiner has
nothing to tell: in evaluation mode it returns its input bit for bit.

Rows are inputs because a camera that stands at one height sees the floor of a row at one distance,
which tells the scale by itself (as in CoordConv, Liu et al. 2018).
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TYPICAL = 0.9  # log metres, of an indoor scene
# ImageNet statistics of RGB in 0..1; of log depth, those of an indoor scene; of rows in -1..1.
INPUT_MEAN = (0.485, 0.456, 0.406, TYPICAL, 0.0)
INPUT_STD = (0.229, 0.224, 0.225, 0.6, 0.58)
INPUTS = len(INPUT_MEAN)
NEAREST_M = 0.05  # what is nearer looks like this to the backbone; 0 means no measurement
LEAST_M = 1e-3  # below the least step of any depth file


class RefinerNetwork(nn.Module):
    """Corrects metric depth by at most a factor exp(+-max_log) at a pixel.

    `backbone` maps [B, INPUTS, H', W'] with H', W' divisible by `backbone.stride` to a map
    [B, 1, H', W'] of log depth about TYPICAL.
    """

    mean: Tensor
    std: Tensor
    trained: Tensor

    def __init__(self, backbone: nn.Module, max_log: float) -> None:
        super().__init__()
        self.backbone = backbone
        self.max_log = max_log
        self.stride = int(backbone.stride)  # type: ignore[arg-type]
        shape = (1, INPUTS, 1, 1)
        self.register_buffer("mean", torch.tensor(INPUT_MEAN).view(shape), persistent=False)
        self.register_buffer("std", torch.tensor(INPUT_STD).view(shape), persistent=False)
        self.register_buffer("trained", torch.tensor(False))

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor:
        """Refine a batch.

        Args:
            rgb01: float [B, 3, H, W] in 0..1.
            zoe_m: float32 [B, 1, H, W], metres; 0 is no measurement and stays 0.

        Returns:
            float32 [B, 1, H, W], metres. Any H and W.
        """
        height, width = zoe_m.shape[-2:]
        log_zoe = zoe_m.clamp(min=LEAST_M).log()
        seen = log_zoe.clamp(min=math.log(NEAREST_M))
        inputs = torch.cat([rgb01, seen, rows_of(zoe_m)], 1)  # [B, INPUTS, H, W]
        inputs = (inputs - self.mean) / self.std
        bottom, right = -height % self.stride, -width % self.stride
        # Replicate, not reflect: it works for pictures smaller than the padding.
        inputs = F.pad(inputs, (0, right, 0, bottom), mode="replicate")
        told = self.backbone(inputs)[..., :height, :width].float() + TYPICAL
        # Bounded before the exponential, which would overflow in a training gone astray.
        change = told - log_zoe
        if self.training:
            self.trained.fill_(True)
            return zoe_m * Bounded.apply(change, self.max_log).exp()
        refined = zoe_m * change.clamp(-self.max_log, self.max_log).exp()
        return torch.where(self.trained, refined, zoe_m)


class Bounded(torch.autograd.Function):
    """Clamps to [-bound, bound]; what lies outside still learns to come back.

    The gradient of a plain clamp is zero out there, and a pixel told wrong at first would never be
    told better. Only what leads further out is kept from it.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, bound: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.bound = bound
        return values.clamp(-bound, bound)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (values,) = ctx.saved_tensors
        # A step goes against its gradient.
        outward = ((values > ctx.bound) & (gradient < 0)) | ((values < -ctx.bound) & (gradient > 0))
        return gradient.masked_fill(outward, 0.0), None


def rows_of(picture: Tensor) -> Tensor:
    """Where each pixel of [B, 1, H, W] is, from -1 at the upper edge to 1 at the lower one."""
    height = picture.shape[-2]
    centres = torch.arange(height, device=picture.device, dtype=torch.float32) + 0.5
    return (centres * (2 / height) - 1)[:, None].expand_as(picture)


class DepthHead(nn.Conv2d):
    """Features [B, channels, H, W] to log depth about TYPICAL, float32 [B, 1, H, W].

    Computed in float32 (TF32 on a GPU) whatever the rest is: bfloat16 has steps of 0.8% there.
    Small at first: a random map, but a plausible one.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 1, 1)
        nn.init.normal_(self.weight, std=0.05)
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        # No context where none is needed: what exports a network would record it.
        if not torch.is_autocast_enabled(features.device.type):
            return super().forward(features.float())
        with torch.autocast(features.device.type, enabled=False):
            return super().forward(features.float())
