"""The guided refiner: depth predicted at a quarter of the resolution, with learned upsampling.

Most of a monocular network's error is smooth (a global scale, warps of tens of pixels), so the
network computes at a quarter of the resolution, where channels are cheap. Convex upsampling (Teed
and Deng 2020, RAFT, section 3.3) restores sharp edges: each fine pixel is a weighted mean of the
3x3 coarse values around it, with weights that the network predicts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.depth.model.refiner import INPUTS, DepthHead, ScaleHead
from zoerefine.depth.model.small import UNetBody
from zoerefine.depth.points.channels import HINTS

FACTOR = 4  # picture resolution over feature resolution
WIDTHS = (2, 4, 6, 8)  # channels of each level, in units of the base
NEIGHBOURS = 9


class GuidedUNet(UNetBody):
    """A `Backbone` that works at a quarter of the resolution."""

    stride = 32

    def __init__(self, base: int, confidence: bool = False, points: bool = False) -> None:
        pixels = FACTOR * FACTOR
        super().__init__((INPUTS + HINTS * points) * pixels, [base * w for w in WIDTHS])
        self.confidence = confidence
        self.head = DepthHead(base * WIDTHS[0])
        if confidence:
            self.scale_head = ScaleHead(base * WIDTHS[0])
        self.weights = nn.Conv2d(base * WIDTHS[0], NEIGHBOURS * pixels, 1)

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.features(F.pixel_unshuffle(inputs, FACTOR))  # [B, C, H/4, W/4]
        weights = neighbour_weights(self.weights(x))
        depth = upsample(self.head(x), weights)
        if not self.confidence:
            return depth
        # Detached: the weights are trained for depth alone.
        weights = weights.detach() if self.training else weights
        return depth, upsample(self.scale_head(x), weights)


def neighbour_weights(predicted: Tensor) -> Tensor:
    """[B, 9 * 16, h, w] to the shares of 3x3 coarse values in each fine one, [B, 9, 16, h, w]."""
    return predicted.unflatten(1, (NEIGHBOURS, FACTOR * FACTOR)).float().softmax(1)


def upsample(coarse: Tensor, weights: Tensor) -> Tensor:
    """Convex upsampling: [B, 1, h, w] and [B, 9, 16, h, w] to [B, 1, 4 h, 4 w]."""
    height, width = coarse.shape[2:]
    padded = F.pad(coarse, (1, 1, 1, 1), mode="replicate")
    around = torch.cat(
        [padded[:, :, y : y + height, x : x + width] for y in range(3) for x in range(3)], 1
    )  # [B, 9, h, w]
    return F.pixel_shuffle((weights * around[:, :, None]).sum(1), FACTOR)
