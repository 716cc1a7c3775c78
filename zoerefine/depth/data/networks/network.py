"""What every network that predicts metric depth offers, and the errors for what is none."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.depth.data import ZOEDEPTH_MODEL
from zoerefine.depth.data.networks.source import PseudoSource


@dataclass(frozen=True)
class DepthNetwork:
    """A network that predicts metric depth.

    Attributes:
        source: its name and digest.
        predict: pictures of one size, uint8 [B, H, W, 3] RGB, to depth, float32 [B, H, W], metres.
    """

    source: PseudoSource
    predict: Callable[[np.ndarray], np.ndarray]


def no_network(name: str, reason: str) -> UserError:
    """The error for something that cannot be loaded."""
    return UserError(
        f"no depth network in {name} ({reason}): give a folder with its config.json and "
        f"model.safetensors, a name on the hub such as {ZOEDEPTH_MODEL}, or an ONNX file"
    )


def relative_depth(name: str, kind: str) -> UserError:
    """The error for a network without metres."""
    return UserError(
        f"{name} ({kind}) predicts relative depth, which has no unit: its scale and offset differ "
        "from picture to picture, so there are no metres to refine; give a metric model"
    )
