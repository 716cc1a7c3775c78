"""A refiner to measure with: random weights that tell something."""

from collections.abc import Iterator

import torch

from zoerefine.export.precision import Inputs
from zoerefine.model import RefinerNetwork, build_refiner
from zoerefine.model.refiner import INPUTS


def wild_refiner(name: str) -> RefinerNetwork:
    """Random weights that tell depth, varying by about a fifth; base 64 for the UNet."""
    torch.manual_seed(0)
    refiner = build_refiner(name, {"unet": 64}.get(name, 16), 1.0).eval()
    for weights in refiner.parameters():
        if weights.dim() > 1:
            torch.nn.init.kaiming_normal_(weights, nonlinearity="relu")
    with torch.no_grad():
        told = refiner.backbone(torch.randn(1, INPUTS, 192, 256))
        refiner.get_parameter("backbone.head.weight").mul_(0.2 / told.square().mean().sqrt())
        refiner.trained.fill_(True)
    return refiner


def no_calibration() -> Iterator[Inputs]:
    """For precisions that need none."""
    return iter(())
