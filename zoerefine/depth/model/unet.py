"""The UNet with a ResNet18 encoder: the first implementation's network.

Parameter names of the encoder are torchvision's (`conv1`, `bn1`, `layer1.0.conv1`, ...), so that
its ImageNet weights load; the first layer has two more input channels, log depth and rows.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.depth.model.refiner import INPUTS, DepthHead, ScaleHead
from zoerefine.depth.points.channels import HINTS

BLOCKS = 2  # residual blocks of a stage, as in ResNet18


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
    """A `Backbone` with a ResNet encoder; base 64 is ResNet18 (14 million parameters)."""

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
            decode(deep + skip, out)
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
            x = F.interpolate(x, scale_factor=2.0)
            if skips:
                x = torch.cat([x, skips.pop()], 1)
            x = level(x)
        depth: Tensor = self.head(x)
        return (depth, self.scale_head(x)) if self.confidence else depth


def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """One resolution of the encoder: BLOCKS residual blocks."""
    rest = [BasicBlock(outputs, outputs, 1) for _ in range(BLOCKS - 1)]
    return nn.Sequential(BasicBlock(inputs, outputs, stride), *rest)


def decode(inputs: int, outputs: int) -> nn.Sequential:
    """One resolution of the decoder: two 3x3 convolutions."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers.append(nn.Conv2d(channels, outputs, 3, padding=1, bias=False))
        layers += [nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
