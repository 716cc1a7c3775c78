"""The networks of refiners; `registries.NETWORKS` has a row for each."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.depth.model.refiner import INPUTS, DepthHead, ScaleHead
from zoerefine.depth.points import HINTS

# Channels of each level, in units of the base.
SMALL_WIDTHS = (1, 2, 4, 6, 8)
GUIDED_WIDTHS = (2, 4, 6, 8)
FACTOR = 4  # of the guided refiner: picture resolution over feature resolution
NEIGHBOURS = 9
BLOCKS = 2  # residual blocks of a stage, as in ResNet18


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
        confidence: whether there is a `scale_head`, too.
    """

    def __init__(self, inputs: int, widths: Sequence[int], confidence: bool) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            block(finer, width) for finer, width in zip([inputs, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            block(deep + skip, skip)
            for deep, skip in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.confidence = confidence
        self.head = DepthHead(widths[0])
        if confidence:
            self.scale_head = ScaleHead(widths[0])

    def features(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, widths[0], H, W]."""
        skips = []
        for level, layer in enumerate(self.down):
            if level:
                x = F.max_pool2d(x, 2)
            x = layer(x)
            skips.append(x)
        for layer, skip in zip(self.up, skips[-2::-1], strict=True):
            x = layer(torch.cat([doubled(x), skip], 1))
        return x


class SmallUNet(UNetBody):
    """A `Backbone`: a five-level UNet of about one million parameters (at base 16)."""

    stride = 16

    def __init__(self, base: int, confidence: bool = False, points: bool = False) -> None:
        super().__init__(INPUTS + HINTS * points, [base * w for w in SMALL_WIDTHS], confidence)

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        features = self.features(inputs)
        depth: Tensor = self.head(features)
        return (depth, self.scale_head(features)) if self.confidence else depth


class GuidedUNet(UNetBody):
    """A `Backbone` that predicts depth at a quarter of the resolution, with learned upsampling.

    Most of a monocular network's error is smooth (a global scale, warps of tens of pixels), so it
    computes at a quarter of the resolution, where channels are cheap. Convex upsampling (Teed and
    Deng 2020, RAFT, section 3.3) restores sharp edges: each fine pixel is a weighted mean of the
    3x3 coarse values around it, with weights that the network predicts.
    """

    stride = 32

    def __init__(self, base: int, confidence: bool = False, points: bool = False) -> None:
        pixels, widths = FACTOR * FACTOR, [base * w for w in GUIDED_WIDTHS]
        super().__init__((INPUTS + HINTS * points) * pixels, widths, confidence)
        self.weights = nn.Conv2d(widths[0], NEIGHBOURS * pixels, 1)

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.features(F.pixel_unshuffle(inputs, FACTOR))  # [B, C, H/4, W/4]
        weights = self.weights(x).unflatten(1, (NEIGHBOURS, FACTOR * FACTOR)).float().softmax(1)
        depth = upsample(self.head(x), weights)
        if not self.confidence:
            return depth
        # Detached: the weights are trained for depth alone.
        weights = weights.detach() if self.training else weights
        return depth, upsample(self.scale_head(x), weights)


def doubled(x: Tensor) -> Tensor:
    """[B, C, H, W] to [B, C, 2 H, 2 W] by repeating values, in the type of x.

    Autocast on a GPU would copy x to float32, and what it is joined to as well.
    """
    if not torch.is_autocast_enabled("cuda"):
        return F.interpolate(x, scale_factor=2.0)
    with torch.autocast("cuda", enabled=False):
        return F.interpolate(x, scale_factor=2.0)


def upsample(coarse: Tensor, weights: Tensor) -> Tensor:
    """Convex upsampling of [B, 1, h, w] to [B, 1, 4 h, 4 w].

    Args:
        weights: the shares of 3x3 coarse values in each fine one, [B, 9, 16, h, w].
    """
    height, width = coarse.shape[2:]
    padded = F.pad(coarse, (1, 1, 1, 1), mode="replicate")
    around = torch.cat(
        [padded[:, :, y : y + height, x : x + width] for y in range(3) for x in range(3)], 1
    )  # [B, 9, h, w]
    return F.pixel_shuffle((weights * around[:, :, None]).sum(1), FACTOR)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016, ResNet18's block)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.downsample(x))


class ResNetUNet(nn.Module):
    """A `Backbone` with a ResNet encoder, the first implementation's network.

    Base 64 is ResNet18 (14 million parameters). Parameter names of the encoder are torchvision's
    (`conv1`, `bn1`, `layer1.0.conv1`, ...), so that its ImageNet weights load; the first layer has
    two more input channels, log depth and rows.
    """

    stride = 32

    def __init__(self, base: int, confidence: bool = False, points: bool = False) -> None:
        super().__init__()
        widths = [base, base, 2 * base, 4 * base, 8 * base]
        self.conv1 = nn.Conv2d(INPUTS + HINTS * points, base, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        self.layer1 = stage(base, base, 1)
        self.layer2 = stage(base, 2 * base, 2)
        self.layer3 = stage(2 * base, 4 * base, 2)
        self.layer4 = stage(4 * base, 8 * base, 2)
        # Channels of each decoder level: from the level below it, from its skip, and its output.
        deeper = [widths[4], 4 * base, 2 * base, base, base // 2]
        skipped = [*widths[3::-1], 0]
        outputs = [*deeper[1:], base // 4]
        self.decoder = nn.ModuleList(
            block(deep + skip, out)
            for deep, skip, out in zip(deeper, skipped, outputs, strict=True)
        )
        self.confidence = confidence
        self.head = DepthHead(outputs[-1])
        if confidence:
            self.scale_head = ScaleHead(outputs[-1])

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        skips = [F.relu(self.bn1(self.conv1(inputs)))]  # [B, base, H/2, W/2]
        x = self.layer1(F.max_pool2d(skips[0], 3, 2, 1))  # [B, base, H/4, W/4]
        for layer in (self.layer2, self.layer3, self.layer4):
            skips.append(x)
            x = layer(x)  # after the last, [B, 8 base, H/32, W/32]
        for level in self.decoder:
            x = doubled(x)
            if skips:
                x = torch.cat([x, skips.pop()], 1)
            x = level(x)
        depth: Tensor = self.head(x)
        return (depth, self.scale_head(x)) if self.confidence else depth


def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """One resolution of the encoder: BLOCKS residual blocks."""
    rest = [BasicBlock(outputs, outputs, 1) for _ in range(BLOCKS - 1)]
    return nn.Sequential(BasicBlock(inputs, outputs, stride), *rest)
