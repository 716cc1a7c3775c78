"""ImageNet weights from a local file, for refiners with torchvision's ResNet18 in them."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from zoerefine.errors import UserError
from zoerefine.model import RefinerNetwork

FIRST = "conv1.weight"


def load_pretrained(refiner: RefinerNetwork, path: Path) -> None:
    """Put an encoder's weights into a refiner's backbone.

    Names are torchvision's (`conv1.weight`, `layer1.0.conv1.weight`, ...; `fc` is not used). The
    first layer's fourth channel, log depth, begins as the mean of the three of RGB; its fifth,
    rows, at zero.

    Args:
        refiner: with a `ResNetUNet` of base 64.
        path: a file of `torch.save`, read without running code, or of safetensors.

    Raises:
        UserError: no such file, no weights in it, or of another network.
    """
    weights = {name: value for name, value in read(path).items() if not name.startswith("fc.")}
    ours = refiner.backbone.state_dict()
    if FIRST in weights and weights[FIRST].shape[1:2] == (3,):
        rgb = weights[FIRST]
        mean = rgb.mean(1, keepdim=True)
        weights[FIRST] = torch.cat([rgb, mean, torch.zeros_like(mean)], 1)
    for name, value in weights.items():
        if name not in ours or ours[name].shape != value.shape:
            have = f"{tuple(ours[name].shape)} there" if name in ours else "no such layer there"
            raise UserError(
                f"MODEL.PRETRAINED {path}: {name} {tuple(value.shape)} does not fit the refiner "
                f"({have}): use MODEL.NAME unet, MODEL.BASE 64 with ResNet18's weights"
            )
    if FIRST not in weights:
        raise UserError(f"MODEL.PRETRAINED {path} holds no {FIRST}: are they ResNet18's weights?")
    refiner.backbone.load_state_dict(weights, strict=False)


def read(path: Path) -> dict[str, Tensor]:
    """Tensors by name. Raises `UserError` where the file holds no such thing."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        weights = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(weights, dict) and all(isinstance(v, Tensor) for v in weights.values()):
            return weights
        reason = "it holds something else"
    except FileNotFoundError:
        reason = "no such file"
    except Exception as error:  # each format has errors of its own
        reason = str(error).strip().splitlines()[0]
    raise UserError(f"MODEL.PRETRAINED {path} cannot be read as weights: {reason}")
