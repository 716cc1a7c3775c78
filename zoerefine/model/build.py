"""From the MODEL section of a config to a refiner."""

from collections.abc import Mapping
from typing import Any

from zoerefine.model.backbone import build_backbone
from zoerefine.model.refiner import RefinerNetwork


def build_refiner(model: Mapping[str, Any]) -> RefinerNetwork:
    """A new refiner with random weights: it returns its input until trained.

    Args:
        model: `cfg.MODEL`, or a mapping with its keys: NAME and BASE of the network, MAX_LOG, the
            bound of the correction in log depth, and OPTIONS, the network's own keyword arguments
            (none if absent).

    Raises:
        UserError: as `build_backbone`.
    """
    backbone = build_backbone(model["NAME"], model["BASE"], model.get("OPTIONS", {}))
    return RefinerNetwork(backbone, model["MAX_LOG"])
