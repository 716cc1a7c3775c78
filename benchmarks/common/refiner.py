"""A refiner to measure with: random weights, and a manifest for its bundles."""

from collections.abc import Iterator

import torch

from zoerefine.depth.exporting.precision import RefinerInputs
from zoerefine.depth.model import RefinerNetwork, build_refiner
from zoerefine.depth.model.refiner import INPUTS


def random_refiner(name: str, confidence: bool = False) -> RefinerNetwork:
    """Random weights whose log depth has a standard deviation of 0.2; base 64 for the UNet."""
    torch.manual_seed(0)
    refiner = build_refiner(
        {
            "NAME": name,
            "BASE": 64 if name == "unet" else 16,
            "MAX_LOG": 1.0,
            "CONFIDENCE": confidence,
        }
    ).eval()
    for weights in refiner.parameters():
        if weights.dim() > 1:
            torch.nn.init.kaiming_normal_(weights, nonlinearity="relu")
    with torch.no_grad():
        log_depth = refiner.backbone(torch.randn(1, INPUTS, 192, 256))
        log_depth = log_depth[0] if confidence else log_depth
        refiner.get_parameter("backbone.head.weight").mul_(0.2 / log_depth.square().mean().sqrt())
        refiner.trained.fill_(True)
    return refiner


def no_calibration() -> Iterator[RefinerInputs]:
    """For precisions that need no calibration."""
    return iter(())


def minimal_manifest(engine: str, precision: str) -> dict[str, str]:
    """What the manifest of a bundle must have to be loaded."""
    return {"engine": engine, "precision": precision, "torch": torch.__version__, "run": ""}
