"""The small refiner: a five-level UNet of about one million parameters (at base 16)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.depth.model.refiner import INPUTS, DepthHead, ScaleHead
from zoerefine.depth.points.channels import HINTS

WIDTHS = (1, 2, 4, 6, 8)  # channels of each level, in units of the base


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions at one resolution."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNetBody(nn.Module):
    """An encoder that halves the resolution level by level, and a decoder with skip connections.

    Args:
        inputs: channels of the input.
        widths: channels of each level, finest first.
    """

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            block(finer, width) for finer, width in zip([inputs, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            block(deep + skip, skip)
            for deep, skip in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )

    def features(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, widths[0], H, W]."""
        skips = []
        for level, layer in enumerate(self.down):
            if level:
                x = F.max_pool2d(x, 2)
            x = layer(x)
            skips.append(x)
        for layer, skip in zip(self.up, skips[-2::-1], strict=True):
            x = layer(torch.cat([F.interpolate(x, scale_factor=2.0), skip], 1))
        return x


class SmallUNet(UNetBody):
    """A `Backbone`: a UNet at full resolution."""

    stride = 16

    def __init__(self, base: int, confidence: bool = False, points: bool = False) -> None:
        super().__init__(INPUTS + HINTS * points, [base * w for w in WIDTHS])
        self.confidence = confidence
        self.head = DepthHead(base)
        if confidence:
            self.scale_head = ScaleHead(base)

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        features = self.features(inputs)
        depth: Tensor = self.head(features)
        return (depth, self.scale_head(features)) if self.confidence else depth
