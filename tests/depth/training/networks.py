"""Networks of one layer, by `MODEL.NAME tests.depth.training.networks:Class`."""

import torch
from torch import nn

from zoerefine.depth.model.refiner import INPUTS


class OneLayer(nn.Module):
    """A convolution of what `before` makes of the inputs."""

    stride = 1

    def __init__(self, base):
        super().__init__()
        self.layer = nn.Conv2d(INPUTS, 1, 1)

    def forward(self, inputs):
        return self.layer(self.before(inputs))


class Dropping(OneLayer):
    """Draws random numbers in training."""

    def before(self, inputs):
        return nn.functional.dropout(inputs, training=self.training)


class Padded(OneLayer):
    """Has a stride to which the tiny pictures must be padded."""

    stride = 20

    def before(self, inputs):
        return inputs


class Scattering(OneLayer):
    """Has an operation without a deterministic implementation."""

    def before(self, inputs):
        index = torch.arange(inputs.numel(), device=inputs.device)
        return torch.zeros_like(inputs).put_(index, inputs.flatten(), accumulate=False)


class DepthOnly(OneLayer):
    """Sees the pseudo depth alone."""

    def before(self, inputs):
        return inputs * torch.tensor([0.0, 0, 0, 1, 0], device=inputs.device).view(1, -1, 1, 1)


class PictureOnly(OneLayer):
    """Sees the picture alone."""

    def before(self, inputs):
        return inputs * torch.tensor([1.0, 1, 1, 0, 0], device=inputs.device).view(1, -1, 1, 1)


class PartlyUnused(OneLayer):
    """Has a parameter that does not contribute to its output."""

    def __init__(self, base):
        super().__init__(base)
        self.unused = nn.Parameter(torch.zeros(3))

    def before(self, inputs):
        return inputs
