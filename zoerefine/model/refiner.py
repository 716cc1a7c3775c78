"""The refiner: a bounded correction of metric depth in log space, around any backbone.

    depth_m = zoe_m * exp(max_log * tanh((local + scale) / max_log))

`local` is a map and `scale` one number per picture, because most of the error of a monocular
network is a global scale that no local evidence explains. Both heads start at zero, so an
untrained refiner returns its input bit for bit (x * exp(0) == x).

The backbone sees RGB, log depth, and each pixel's row: a camera that stands at one height sees the
floor of a row at one distance, which tells the scale by itself (as in CoordConv, Liu et al. 2018).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# ImageNet statistics of RGB in 0..1; of log depth, those of an indoor scene; of rows in -1..1.
INPUT_MEAN = (0.485, 0.456, 0.406, 0.9, 0.0)
INPUT_STD = (0.229, 0.224, 0.225, 0.6, 0.58)
INPUTS = len(INPUT_MEAN)
NEAREST_M = 0.05  # depth is clamped here before the logarithm; 0 means no measurement


class Refiner(nn.Module):
    """Corrects metric depth by at most a factor exp(+-max_log) at a pixel.

    `backbone` maps [B, INPUTS, H', W'] with H', W' divisible by `backbone.stride` to a pair: a map
    [B, 1, H', W'] and one number per picture [B, 1, 1, 1], both in log depth.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, max_log: float) -> None:
        super().__init__()
        self.backbone = backbone
        self.max_log = max_log
        self.stride = int(backbone.stride)  # type: ignore[arg-type]
        shape = (1, INPUTS, 1, 1)
        self.register_buffer("mean", torch.tensor(INPUT_MEAN).view(shape), persistent=False)
        self.register_buffer("std", torch.tensor(INPUT_STD).view(shape), persistent=False)

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor:
        """Refine a batch.

        Args:
            rgb01: float [B, 3, H, W] in 0..1.
            zoe_m: float32 [B, 1, H, W], metres; 0 is no measurement and stays 0.

        Returns:
            float32 [B, 1, H, W], metres. Any H and W.
        """
        height, width = zoe_m.shape[-2:]
        log_zoe = zoe_m.clamp(min=NEAREST_M).log()
        inputs = torch.cat([rgb01, log_zoe, rows_of(zoe_m)], 1)  # [B, INPUTS, H, W]
        inputs = (inputs - self.mean) / self.std
        bottom, right = -height % self.stride, -width % self.stride
        # Replicate, not reflect: it works for pictures smaller than the padding.
        inputs = F.pad(inputs, (0, right, 0, bottom), mode="replicate")
        local, scale = self.backbone(inputs)
        raw = (local.float() + scale.float())[..., :height, :width]
        return zoe_m * torch.exp(self.max_log * torch.tanh(raw / self.max_log))


def rows_of(picture: Tensor) -> Tensor:
    """Where each pixel of [B, 1, H, W] is, from -1 at the upper edge to 1 at the lower one."""
    height = picture.shape[-2]
    centres = torch.arange(height, device=picture.device, dtype=torch.float32) + 0.5
    return (centres * (2 / height) - 1)[:, None].expand_as(picture)


class ScaleHead(nn.Module):
    """One log scale per picture from the deepest features: [B, C, h, w] -> [B, 1, 1, 1]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(channels, channels)
        self.out = zero_start(nn.Linear(channels, 1))

    def forward(self, deep: Tensor) -> Tensor:
        pooled = deep.mean((2, 3))  # [B, C]
        scale: Tensor = self.out(F.relu(self.hidden(pooled)))
        return scale[:, :, None, None]


def zero_start(layer: nn.Linear | nn.Conv2d) -> nn.Linear | nn.Conv2d:
    """Set a head's weights to zero, so that it adds nothing before it has learned something."""
    nn.init.zeros_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
