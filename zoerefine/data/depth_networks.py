"""Networks that predict metric depth from pictures: ZoeDepth, others of transformers, ONNX files.

`load_network` finds which kind a name or a path is. `zoedepth.py`, `transformers_depth.py` and
`onnx_depth.py` run them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zoerefine.data import ZOEDEPTH_MODEL
from zoerefine.data.pseudo_source import PseudoSource
from zoerefine.errors import UserError

ONNX = ".onnx"


@dataclass(frozen=True)
class DepthNetwork:
    """A network that predicts metric depth.

    Attributes:
        source: its name and digest.
        predict: pictures of one size, uint8 [B, H, W, 3] RGB, to depth, float32 [B, H, W], metres.
    """

    source: PseudoSource
    predict: Callable[[np.ndarray], np.ndarray]


def load_network(name: str) -> DepthNetwork:
    """A network on this machine's device.

    No code of its folder is run: weights are safetensors or an ONNX file.

    Args:
        name: a folder of transformers' format, a name on the Hugging Face hub, or an ONNX file
            with its description beside it.

    Raises:
        UserError: there is no such network, it predicts relative depth, or a package is missing.
    """
    if name.endswith(ONNX):
        from zoerefine.data.onnx_depth import load_onnx

        return load_onnx(name)
    from zoerefine.data.transformers_depth import load_transformers

    return load_transformers(name)


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
