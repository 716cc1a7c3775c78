"""The small refiner: a five-level UNet of about one million parameters, made for robots."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.model.refiner import INPUTS, ScaleHead, zero_start

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
    """Levels of halved resolution and back, joined by skips, and a scale told at the bottom."""

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            block(above, below) for above, below in zip([inputs, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            block(deep + skip, skip)
            for deep, skip in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.scale = ScaleHead(widths[-1])

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, inputs, H, W] to the first level's [B, widths[0], H, W], and scale [B, 1, 1, 1]."""
        skips = []
        for level, layer in enumerate(self.down):
            if level:
                x = F.max_pool2d(x, 2)
            x = layer(x)
            skips.append(x)
        scale = self.scale(x)
        for layer, skip in zip(self.up, skips[-2::-1], strict=True):
            x = layer(torch.cat([F.interpolate(x, scale_factor=2.0), skip], 1))
        return x, scale


class SmallUNet(UNetBody):
    """[B, INPUTS, H, W] -> (local [B, 1, H, W], scale [B, 1, 1, 1]); H, W divisible by `stride`."""

    stride = 16

    def __init__(self, base: int) -> None:
        super().__init__(INPUTS, [base * w for w in WIDTHS])
        self.local = zero_start(nn.Conv2d(base, 1, 1))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = self.features(inputs)
        return self.local(x), scale
