"""Networks that predict metric depth from pictures: ZoeDepth, others of transformers, ONNX files.

`load_network` finds which kind a name or a path is. `transformers_depth.py` and `onnx_depth.py` run
them.
"""

from zoerefine.depth.data.networks.network import DepthNetwork
from zoerefine.depth.data.networks.onnx import load_onnx

ONNX = ".onnx"


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
        return load_onnx(name)
    from zoerefine.depth.data.networks.transformers import load_transformers  # imports torch

    return load_transformers(name)
