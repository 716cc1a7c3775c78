"""Networks that predict metric depth, and the pseudo depth that they add to a data set.

They are ZoeDepth, others of transformers, and ONNX files; `load_network` finds which kind a name or
a path is.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoerefine.depth.data.networks.pseudo_source import DepthNetwork

# What other packages import from here; the rest is this package's own.
OPEN = ("add_pseudo", "pseudo_source")

ONNX = ".onnx"


def load_network(name: str) -> "DepthNetwork":
    """A network on this machine's device.

    No code of its folder is run: weights are safetensors or an ONNX file.

    Args:
        name: a folder of transformers' format, a name on the Hugging Face hub, or an ONNX file
            with its description beside it.

    Raises:
        UserError: there is no such network, it predicts relative depth, or a package is missing.
    """
    if name.endswith(ONNX):
        from zoerefine.depth.data.networks.onnx import load_onnx

        return load_onnx(name)
    from zoerefine.depth.data.networks.transformers import load_transformers

    return load_transformers(name)
