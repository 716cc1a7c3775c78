"""The guided refiner: a correction made at a quarter of the resolution, and upsampled by learning.

Most of a monocular network's error is smooth (a global scale, warps of tens of pixels), so the
network works where pixels are few and channels cheap. What sharpness the correction needs comes
back by convex upsampling (Teed and Deng 2020, RAFT, section 3.3): each fine pixel is a weighted
mean of the 3x3 coarse values around it, with weights that the network tells from the picture.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.model.refiner import ScaleHead, zero_start
from zoerefine.model.small import block

FACTOR = 4  # between the resolution of the correction and the picture's
WIDTHS = (2, 4, 6, 8)  # channels of each level, in units of the base
NEIGHBOURS = 9


class GuidedUNet(nn.Module):
    """[B, 4, H, W] -> (local [B, 1, H, W], scale [B, 1, 1, 1]); H, W divisible by `stride`."""

    stride = 32

    def __init__(self, base: int) -> None:
        super().__init__()
        widths = [base * w for w in WIDTHS]
        pixels = FACTOR * FACTOR
        self.down = nn.ModuleList(
            block(inputs, outputs)
            for inputs, outputs in zip([4 * pixels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            block(deep + skip, skip)
            for deep, skip in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.scale = ScaleHead(widths[-1])
        self.coarse = zero_start(nn.Conv2d(widths[0], 1, 1))
        self.weights = nn.Conv2d(widths[0], NEIGHBOURS * pixels, 1)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        skips = []
        x = F.pixel_unshuffle(inputs, FACTOR)  # [B, 64, H/4, W/4]
        for level, layer in enumerate(self.down):
            if level:
                x = F.max_pool2d(x, 2)
            x = layer(x)
            skips.append(x)
        scale = self.scale(x)
        for layer, skip in zip(self.up, skips[-2::-1], strict=True):
            x = layer(torch.cat([F.interpolate(x, scale_factor=2.0), skip], 1))
        return upsample(self.coarse(x), self.weights(x)), scale


def upsample(coarse: Tensor, weights: Tensor) -> Tensor:
    """Convex upsampling: [B, 1, h, w] and [B, 9 * 16, h, w] to [B, 1, 4 h, 4 w]."""
    height, width = coarse.shape[2:]
    padded = F.pad(coarse, (1, 1, 1, 1), mode="replicate")
    around = torch.cat(
        [padded[:, :, y : y + height, x : x + width] for y in range(3) for x in range(3)], 1
    )  # [B, 9, h, w]
    shares = weights.unflatten(1, (NEIGHBOURS, FACTOR * FACTOR)).float().softmax(1)
    return F.pixel_shuffle((shares * around[:, :, None]).sum(1), FACTOR)
