"""Runs Depth Pro on pictures.

The network comes from Hugging Face transformers. The steps before and after it are those of its
image processor there, which needs torchvision; these need torch alone.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

MEAN = STD = 0.5
LEAST_INVERSE, MOST_INVERSE = 1e-4, 1e4  # of depth, per metre


@torch.inference_mode()
def predict(network: Any, device: torch.device, pictures: np.ndarray) -> np.ndarray:
    """Depth, float32 [B, H, W], metres, of pictures of one size, uint8 [B, H, W, 3] RGB."""
    rgb_u8 = torch.from_numpy(pictures).to(device)
    rgb = (rgb_u8.permute(0, 3, 1, 2).float() / 255 - MEAN) / STD
    side = round(network.config.patch_size / min(network.config.scaled_images_ratios))
    prepared = F.interpolate(rgb, (side, side), mode="bilinear", align_corners=False)
    found = network(pixel_values=prepared)
    inverse = found.predicted_depth[:, None].float()
    if found.field_of_view is not None:
        inverse = inverse * width_over_focal_length(found.field_of_view.float())
    size = pictures.shape[1:3]
    inverse = F.interpolate(inverse, size, mode="bilinear", align_corners=False)
    return (1 / inverse.clamp(LEAST_INVERSE, MOST_INVERSE))[:, 0].cpu().numpy()


def width_over_focal_length(field_of_view: Tensor) -> Tensor:
    """Of the picture, [B, 1, 1, 1], from the horizontal field of view in degrees, [B].

    The network predicts inverse depth as if the focal length were the picture's width.
    """
    return 2 * torch.tan(torch.deg2rad(field_of_view) / 2).view(-1, 1, 1, 1)
