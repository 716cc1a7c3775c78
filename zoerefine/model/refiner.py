"""The refiner: predicted metric depth, bounded around the pseudo depth, with any backbone.

    predicted_log_depth = MEAN_LOG_DEPTH + backbone(rgb, log zoe_m, rows)
    depth_m = zoe_m exp(clip(predicted_log_depth - log zoe_m, -max_log, max_log))

The backbone predicts log depth, not a correction of the pseudo depth. To predict a correction, it
would first have to undo the errors of the pseudo depth's scale and details; to predict depth, it
takes from the pseudo depth what is right (benchmarks/quality.py). The bound limits the correction:
depth differs from the pseudo depth by at most a factor exp(max_log). An untrained refiner returns
its input unchanged, bit for bit, in evaluation mode.

The row of a pixel is an input (as in CoordConv, Liu et al. 2018): a camera at a constant height
sees the floor of a row at a constant distance, which gives the scale.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN_LOG_DEPTH = 0.9  # log metres, of an indoor scene
# ImageNet statistics for RGB in 0..1, indoor statistics for log depth, those of rows in -1..1.
INPUT_MEAN = (0.485, 0.456, 0.406, MEAN_LOG_DEPTH, 0.0)
INPUT_STD = (0.229, 0.224, 0.225, 0.6, 0.58)
INPUTS = len(INPUT_MEAN)
NEAREST_INPUT_M = 0.05  # the backbone sees nearer depths, and 0 (no measurement), as this depth
SMALLEST_DEPTH_M = 1e-3  # smaller than the step of any depth file


class RefinerNetwork(nn.Module):
    """Corrects metric depth by at most a factor exp(+-max_log) at a pixel.

    `backbone` is a `zoerefine.model.backbone.Backbone`: it maps [B, INPUTS, H', W'], with H' and
    W' divisible by `backbone.stride`, to log depth less MEAN_LOG_DEPTH, [B, 1, H', W'].
    """

    mean: Tensor
    std: Tensor
    trained: Tensor
    rows: Tensor | None
    size: tuple[int, int] | None

    def __init__(self, backbone: nn.Module, max_log: float) -> None:
        super().__init__()
        self.backbone = backbone
        self.max_log = max_log
        self.stride = int(backbone.stride)  # type: ignore[arg-type]
        shape = (1, INPUTS, 1, 1)
        self.register_buffer("mean", torch.tensor(INPUT_MEAN).view(shape), persistent=False)
        self.register_buffer("std", torch.tensor(INPUT_STD).view(shape), persistent=False)
        self.register_buffer("trained", torch.tensor(False))
        self.register_buffer("rows", None, persistent=False)
        self.size = None

    def fix_size(self, height: int, width: int) -> None:
        """Take pictures of this size only, so that a trace names no device and no branch.

        A traced `arange` keeps the device that it was traced on; a buffer moves with its module.
        """
        rows = row_positions(height, self.mean.device)
        self.register_buffer("rows", rows, persistent=False)
        self.size = height, width

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor:
        """Refine a batch.

        Args:
            rgb01: float [B, 3, H, W] in 0..1.
            zoe_m: float32 [B, 1, H, W], metres; 0 means no measurement and stays 0.

        Returns:
            float32 [B, 1, H, W], metres. Any H and W.
        """
        height, width = self.size or zoe_m.shape[-2:]
        log_zoe = zoe_m.clamp(min=SMALLEST_DEPTH_M).log()
        log_input = log_zoe.clamp(min=math.log(NEAREST_INPUT_M))
        rows = row_positions(height, zoe_m.device) if self.rows is None else self.rows
        inputs = torch.cat([rgb01, log_input, rows.expand_as(zoe_m)], 1)  # [B, INPUTS, H, W]
        inputs = (inputs - self.mean) / self.std
        bottom, right = -height % self.stride, -width % self.stride
        if bottom or right:
            # Replicate, not reflect: it also works for pictures smaller than the padding.
            inputs = F.pad(inputs, (0, right, 0, bottom), mode="replicate")
        output = self.backbone(inputs).float()
        if bottom or right:
            output = output[..., :height, :width]
        predicted_log_depth = output + MEAN_LOG_DEPTH
        # Clamped before the exponential, which would overflow in a training that diverges.
        change = predicted_log_depth - log_zoe
        if self.training:
            self.trained.fill_(True)
            return zoe_m * ClampKeepingGradient.apply(change, self.max_log).exp()
        refined = zoe_m * change.clamp(-self.max_log, self.max_log).exp()
        return torch.where(self.trained, refined, zoe_m)


class ClampKeepingGradient(torch.autograd.Function):
    """Clamps to [-bound, bound], and keeps the gradients that lead back inside.

    Outside its bounds a plain clamp has gradient 0, so a pixel predicted out there would stay
    there. Here only gradients that lead further out are set to 0.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, bound: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.bound = bound
        return values.clamp(-bound, bound)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (values,) = ctx.saved_tensors
        # An optimiser's step goes against the gradient.
        outward = ((values > ctx.bound) & (gradient < 0)) | ((values < -ctx.bound) & (gradient > 0))
        return gradient.masked_fill(outward, 0.0), None


def row_positions(height: int, device: torch.device) -> Tensor:
    """Vertical position of each row, [H, 1]: -1 at the upper edge, 1 at the lower."""
    centres = torch.arange(height, device=device, dtype=torch.float32) + 0.5
    return (centres * (2 / height) - 1)[:, None]


class DepthHead(nn.Conv2d):
    """Features [B, channels, H, W] to log depth less MEAN_LOG_DEPTH, float32 [B, 1, H, W].

    Computes in float32 (TF32 on a GPU) under autocast, too: bfloat16 has steps of 0.8%. Initial
    weights are small, so that the first predictions are plausible depths.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 1, 1)
        nn.init.normal_(self.weight, std=0.05)
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        # Without autocast, no context either: an export would record it.
        if not torch.is_autocast_enabled(features.device.type):
            return super().forward(features.float())
        with torch.autocast(features.device.type, enabled=False):
            return super().forward(features.float())
