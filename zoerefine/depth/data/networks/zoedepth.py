"""Runs ZoeDepth on pictures.

The network and its weights come from Hugging Face transformers. The steps before and after it are
here, in batches on the device, and follow ZoeDepth's own `infer` (isl-org/ZoeDepth): padding by
reflection, the average with the mirrored picture, bicubic resizing to the picture's size.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

SIZE = (384, 512)  # height and width near which the network is used
MULTIPLE = 32  # the network's input sides are multiples of this
MEAN = STD = 0.5

# Normalised pictures [B, 3, H, W] on the network's device to depth [B, 1, H, W], metres.
Model = Callable[[Tensor], Tensor]


def model_of(network: Any, device: torch.device) -> Model:
    """Transformers' network, on its device, as a function."""

    def run(pictures: Tensor) -> Tensor:
        depth_m: Tensor = network(pixel_values=pictures).predicted_depth[:, None]
        return depth_m.float()

    return in_half_precision(run, device) if device.type == "cuda" else run


def in_half_precision(model: Model, device: torch.device) -> Model:
    """The model with convolutions and matrix products in fp16, as ZoeDepth was trained.

    Pictures whose activations are too large for fp16 are computed again in float32.
    """

    def run(pictures: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.float16):
            depth_m = model(pictures)
        return depth_m if depth_m.isfinite().all() else model(pictures)

    return run


@torch.inference_mode()
def predict(model: Model, device: torch.device, pictures: np.ndarray) -> np.ndarray:
    """Depth, float32 [B, H, W], metres, of pictures of one size, uint8 [B, H, W, 3] RGB.

    The device is the network's: another one may be current in this thread.
    """
    rgb_u8 = torch.from_numpy(pictures).to(device)  # as bytes, a quarter of the floats
    rgb01 = rgb_u8.permute(0, 3, 1, 2).float() / 255
    prepared = prepare(rgb01)
    depth_m = (model(prepared) + model(prepared.flip(3)).flip(3)) / 2
    return restore(depth_m, pictures.shape[1:3])[:, 0].cpu().numpy()


def padding(height: int, width: int) -> tuple[int, int]:
    """Rows and columns that ZoeDepth adds on each side, because its depth is worse at edges."""
    return int(math.sqrt(height / 2) * 3), int(math.sqrt(width / 2) * 3)


def prepare(rgb01: Tensor) -> Tensor:
    """Pad by reflection, resize and normalise [B, 3, H, W] in 0..1 for the network."""
    rows, columns = padding(*rgb01.shape[2:])
    padded = F.pad(rgb01, (columns, columns, rows, rows), mode="reflect")
    size = network_size(*padded.shape[2:])
    resized = F.interpolate(padded, size, mode="bilinear", align_corners=True)
    return (resized - MEAN) / STD


def network_size(height: int, width: int) -> tuple[int, int]:
    """The input size for a padded picture: multiples of 32 near `SIZE`, with its aspect ratio.

    Scales by the side that changes less, as ZoeDepth does.
    """
    scales = SIZE[0] / height, SIZE[1] / width
    scale = min(scales, key=lambda value: (abs(1 - value), value == scales[1]))
    return tuple(round(scale * side / MULTIPLE) * MULTIPLE for side in (height, width))  # type: ignore[return-value]


def restore(depth_m: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize the network's output and remove the padding: [B, 1, h, w] to [B, 1, H, W]."""
    (height, width), (rows, columns) = size, padding(*size)
    padded = F.interpolate(
        depth_m, (height + 2 * rows, width + 2 * columns), mode="bicubic", align_corners=False
    )
    return padded[:, :, rows : rows + height, columns : columns + width]
