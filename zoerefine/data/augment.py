"""Augmentation of a batch on the device: each sample's is a function of (seed, epoch, index)."""

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.prefetch import DeviceBatch

CHANNELS = ("flip", "brightness", "contrast", "saturation", "scale")


def augment(
    batch: DeviceBatch, seed: int, epoch: int, flip: float, color: float, scale: float
) -> DeviceBatch:
    """Mirror all fields together, jitter the colours of RGB, scale the pseudo depth.

    Args:
        batch: the batch, on any device.
        seed, epoch: with each sample's index they decide everything that is random.
        flip: probability of a mirrored sample.
        color: brightness, contrast and saturation change by up to this share.
        scale: standard deviation of the logarithm of the pseudo depth's factor.
    """
    draws = sample_draws(batch.index, seed, epoch).to(batch.zoe_m.device)  # [B, 5]
    flipped = (draws[:, 0].abs() < flip)[:, None, None, None]
    rgb01, zoe_m, depth_m, objects = (
        torch.where(flipped, field.flip(3), field)
        for field in (batch.rgb01, batch.zoe_m, batch.depth_m, batch.objects)
    )
    if color:
        rgb01 = jitter_color(rgb01, color * draws[:, 1:4])
    if scale:
        zoe_m = zoe_m * torch.exp(scale * normal(draws[:, 4]))[:, None, None, None]
    return DeviceBatch(rgb01, zoe_m, depth_m, objects, batch.index)


def sample_draws(index: Tensor, seed: int, epoch: int) -> Tensor:
    """Numbers in -1..1 for each sample, float32 [B, len(CHANNELS)]; the first ones in 0..1.

    The counter-based Philox generator gives each (seed, epoch, index) numbers of its own.
    """
    rows = []
    for i in index.tolist():
        generator = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, i]))
        rows.append(generator.random(len(CHANNELS), np.float32) * 2 - 1)
    draws = torch.from_numpy(np.stack(rows))
    draws[:, 0] = (draws[:, 0] + 1) / 2
    return draws


def jitter_color(rgb01: Tensor, change: Tensor) -> Tensor:
    """Brightness, contrast and saturation of [B, 3, H, W] changed by the shares in [B, 3]."""
    brightness, contrast, saturation = (1 + change[:, i, None, None, None] for i in range(3))
    rgb01 = rgb01 * brightness
    grey = rgb01.mean((1, 2, 3), keepdim=True)
    rgb01 = grey + (rgb01 - grey) * contrast
    luminance = rgb01.mean(1, keepdim=True)
    return (luminance + (rgb01 - luminance) * saturation).clamp(0, 1)


def normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers from uniform ones in -1..1."""
    return torch.erfinv(uniform.clamp(-0.999, 0.999)) * 2**0.5
