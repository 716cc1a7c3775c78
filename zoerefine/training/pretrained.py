"""ImageNet weights from a local file, for refiners with a ResNet18 encoder."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from zoerefine.errors import UserError
from zoerefine.model import RefinerNetwork

FIRST_LAYER = "conv1.weight"


def load_pretrained(refiner: RefinerNetwork, path: Path) -> None:
    """Load an encoder's weights into a refiner's backbone.

    Names are torchvision's (`conv1.weight`, `layer1.0.conv1.weight`, ...; `fc` is ignored). In the
    first layer, the weights of log depth start as the mean of the three RGB weights, and those of
    rows at zero.

    Args:
        refiner: with a `ResNetUNet` of base 64.
        path: a file of `torch.save` (read without running code) or of safetensors.

    Raises:
        UserError: the file is missing, holds no weights, or those of another network.
    """
    weights = {name: value for name, value in read(path).items() if not name.startswith("fc.")}
    ours = refiner.backbone.state_dict()
    if FIRST_LAYER in weights and weights[FIRST_LAYER].shape[1:2] == (3,):
        rgb = weights[FIRST_LAYER]
        mean = rgb.mean(1, keepdim=True)
        weights[FIRST_LAYER] = torch.cat([rgb, mean, torch.zeros_like(mean)], 1)
    for name, value in weights.items():
        if name not in ours or ours[name].shape != value.shape:
            have = f"has {tuple(ours[name].shape)}" if name in ours else "has no such layer"
            raise UserError(
                f"MODEL.PRETRAINED {path}: {name} {tuple(value.shape)} does not fit the refiner, "
                f"which {have}: use MODEL.NAME unet, MODEL.BASE 64 with ResNet18's weights"
            )
    if FIRST_LAYER not in weights:
        raise UserError(f"MODEL.PRETRAINED {path} has no {FIRST_LAYER}: give ResNet18's weights")
    refiner.backbone.load_state_dict(weights, strict=False)


def read(path: Path) -> dict[str, Tensor]:
    """Tensors by name. Raises `UserError` where the file cannot be read as such."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        weights = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(weights, dict) and all(isinstance(v, Tensor) for v in weights.values()):
            return weights
    except OSError as error:
        raise UserError(
            f"MODEL.PRETRAINED {path} cannot be read: {error.strerror or error}"
        ) from None
    except Exception:  # each format raises its own errors, and torch's advise to run the file
        pass
    raise UserError(
        f"MODEL.PRETRAINED {path} does not hold tensors by name: give a .safetensors file, or a "
        ".pth file with a state_dict (a pickled model is code and is not loaded)"
    )
