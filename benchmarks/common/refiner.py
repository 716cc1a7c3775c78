"""A refiner to measure with: random weights whose corrections matter."""

from collections.abc import Iterator

import torch

from zoerefine.export.precision import Inputs
from zoerefine.model import Refiner, build_refiner
from zoerefine.model.refiner import INPUTS


def wild_refiner(name: str) -> Refiner:
    """Random weights that change depth by about a fifth, unevenly; base 64 for the UNet."""
    torch.manual_seed(0)
    refiner = build_refiner(name, {"unet": 64}.get(name, 16), 1.0).eval()
    for weights in refiner.parameters():
        if weights.dim() > 1:
            torch.nn.init.kaiming_normal_(weights, nonlinearity="relu")
    heads = [getattr(refiner.backbone, "local", None) or refiner.backbone.coarse]
    heads.append(refiner.backbone.scale.out)  # type: ignore[union-attr]
    with torch.no_grad():
        outputs = refiner.backbone(torch.randn(1, INPUTS, 192, 256))
        for head, output in zip(heads, outputs, strict=True):
            head.weight *= 0.2 / output.square().mean().sqrt()  # type: ignore[operator, union-attr]
    return refiner


def no_calibration() -> Iterator[Inputs]:
    """For precisions that need none."""
    return iter(())
