"""Refiners: networks that correct metric depth."""

from collections.abc import Mapping
from typing import Any

from zoerefine.base.depth_limits import TYPICAL_M
from zoerefine.depth.model.backbone import build_backbone
from zoerefine.depth.model.refiner import DEPTH, RefinerNetwork


def build_refiner(model: Mapping[str, Any]) -> RefinerNetwork:
    """A new refiner with random weights: it returns its input until trained.

    Args:
        model: `cfg.MODEL`, or a mapping with its keys: NAME and BASE of the network, MAX_LOG, the
            bound of the correction in log depth, PREDICTS (depth if absent), TYPICAL_DEPTH_M
            (of indoor scenes if absent), OPTIONS, the network's own keyword arguments (none if
            absent), and CONFIDENCE (off if absent), which a network that does not offer it ignores,
            and POINTS (off if absent): whether it takes metric points.

    Raises:
        UserError: as `build_backbone`.
    """
    options, confidence = model.get("OPTIONS", {}), model.get("CONFIDENCE", False)
    points = model.get("POINTS", False)
    backbone = build_backbone(model["NAME"], model["BASE"], options, confidence, points)
    return RefinerNetwork(
        backbone,
        model["MAX_LOG"],
        model.get("PREDICTS", DEPTH),
        model.get("TYPICAL_DEPTH_M", TYPICAL_M),
        points,
    )


__all__ = ["RefinerNetwork", "build_refiner"]

# What other packages import from here; the rest is this package's own.
OPEN = ("backbone", "refiner")
