"""The refiner: an estimate of metric depth, held near the pseudo depth, around any backbone.

    depth_m = clip(exp(TYPICAL + backbone(rgb, log zoe_m, rows)),
                   zoe_m exp(-max_log), zoe_m exp(max_log))

The backbone tells log depth itself rather than a correction of the pseudo depth: a correction must
first undo whatever is wrong with the pseudo depth's scale and details, an estimate may take from
it what is right (benchmarks/quality.py). The bound makes it a correction all the same: nowhere is
the pseudo depth left by more than a factor. Before its first step of training a refiner has
nothing to tell, and returns its input bit for bit.

Rows are inputs because a camera that stands at one height sees the floor of a row at one distance,
which tells the scale by itself (as in CoordConv, Liu et al. 2018).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TYPICAL = 0.9  # log metres, of an indoor scene
# ImageNet statistics of RGB in 0..1; of log depth, those of an indoor scene; of rows in -1..1.
INPUT_MEAN = (0.485, 0.456, 0.406, TYPICAL, 0.0)
INPUT_STD = (0.229, 0.224, 0.225, 0.6, 0.58)
INPUTS = len(INPUT_MEAN)
NEAREST_M = 0.05  # depth is clamped here before the logarithm; 0 means no measurement


class Refiner(nn.Module):
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
        self.factor = math.exp(max_log)
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
        if self.training:
            self.trained.fill_(True)
        height, width = zoe_m.shape[-2:]
        log_zoe = zoe_m.clamp(min=NEAREST_M).log()
        inputs = torch.cat([rgb01, log_zoe, rows_of(zoe_m)], 1)  # [B, INPUTS, H, W]
        inputs = (inputs - self.mean) / self.std
        bottom, right = -height % self.stride, -width % self.stride
        # Replicate, not reflect: it works for pictures smaller than the padding.
        inputs = F.pad(inputs, (0, right, 0, bottom), mode="replicate")
        log_depth = self.backbone(inputs)[..., :height, :width].float() + TYPICAL
        held = torch.maximum(log_depth.exp(), zoe_m / self.factor)
        held = torch.minimum(held, zoe_m * self.factor)
        return torch.where(self.trained, held, zoe_m)


def rows_of(picture: Tensor) -> Tensor:
    """Where each pixel of [B, 1, H, W] is, from -1 at the upper edge to 1 at the lower one."""
    height = picture.shape[-2]
    centres = torch.arange(height, device=picture.device, dtype=torch.float32) + 0.5
    return (centres * (2 / height) - 1)[:, None].expand_as(picture)


def depth_head(channels: int) -> nn.Conv2d:
    """Features to log depth about TYPICAL, small at first: a random map, but a plausible one."""
    head = nn.Conv2d(channels, 1, 1)
    nn.init.normal_(head.weight, std=0.05)
    assert head.bias is not None
    nn.init.zeros_(head.bias)
    return head
