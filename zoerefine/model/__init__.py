"""Refiners: networks that correct metric depth."""

from torch import nn

from zoerefine.errors import UserError
from zoerefine.model.guided import GuidedUNet
from zoerefine.model.refiner import RefinerNetwork
from zoerefine.model.small import SmallUNet
from zoerefine.model.unet import ResNetUNet

BACKBONES = {"small": SmallUNet, "unet": ResNetUNet, "guided": GuidedUNet}


def build_refiner(name: str, base: int, max_log: float) -> RefinerNetwork:
    """A new refiner with random weights: it returns its input until trained.

    Args:
        name: one of `BACKBONES`.
        base: channels of the first level.
        max_log: bound of the correction in log depth.
    """
    if name not in BACKBONES:
        raise UserError(f"MODEL.NAME {name!r} is no refiner; known: {', '.join(BACKBONES)}")
    if base < 4 or max_log <= 0:
        raise UserError(
            f"MODEL.BASE must be 4 or more and MODEL.MAX_LOG positive, got {base} and {max_log}"
        )
    backbone: nn.Module = BACKBONES[name](base)
    return RefinerNetwork(backbone, max_log)


__all__ = ["BACKBONES", "RefinerNetwork", "build_refiner"]
