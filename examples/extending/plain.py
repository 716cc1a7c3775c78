"""A plain stack of convolutions."""

from itertools import pairwise

from torch import Tensor, nn

from zoerefine.depth.model.refiner import INPUTS, DepthHead


class PlainNet(nn.Module):
    """[B, INPUTS, H, W] -> log depth [B, 1, H, W], with `layers` convolutions."""

    stride = 1  # heights and widths are padded to multiples of this

    def __init__(self, base: int, layers: int = 2) -> None:
        super().__init__()
        widths = [INPUTS] + [base] * layers
        self.body = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in pairwise(widths))
        )
        self.head = DepthHead(base)

    def forward(self, inputs: Tensor) -> Tensor:
        depth: Tensor = self.head(self.body(inputs))
        return depth
