"""Augmentation of a batch on the device: each sample's is a function of (seed, epoch, index)."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoerefine.data.prefetch import DeviceBatch

DRAWS = 8  # numbers a sample: flip, brightness, contrast, saturation, scale, crop's size and place


@dataclass(frozen=True)
class Augmentation:
    """What is changed, and how much.

    Attributes:
        flip: probability of a mirrored sample; all fields together.
        crop: a window of at least 1 - crop of the sides is blown up to the whole; all fields
            together, depths and ids never mixed with their neighbours'.
        color: brightness, contrast and saturation of RGB change by up to this share.
        scale: standard deviation of the logarithm of the pseudo depth's factor.
    """

    flip: float = 0.0
    crop: float = 0.0
    color: float = 0.0
    scale: float = 0.0

    def __call__(self, batch: DeviceBatch, seed: int, epoch: int) -> DeviceBatch:
        """Change a batch; `seed`, `epoch` and each sample's index decide what is random."""
        draws = sample_draws(batch.index.numpy(), seed, epoch)
        uniform = torch.from_numpy(draws).to(batch.zoe_m.device, non_blocking=True)
        signed = uniform * 2 - 1
        if self.flip:
            batch = flip(batch, uniform[:, 0] < self.flip)
        if self.crop:
            batch = crop(batch, 1 - self.crop * uniform[:, 5], signed[:, 6:8])
        rgb01, zoe_m = batch.rgb01, batch.zoe_m
        if self.color:
            rgb01 = jitter_color(rgb01, self.color * signed[:, 1:4])
        if self.scale:
            zoe_m = zoe_m * torch.exp(self.scale * normal(signed[:, 4]))[:, None, None, None]
        return DeviceBatch(rgb01, zoe_m, batch.depth_m, batch.objects, batch.index)


def sample_draws(index: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Numbers in [0, 1) for each sample, float32 [B, DRAWS], of its own (seed, epoch, index).

    The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators", 2014), applied to one word after the other.
    """
    state = np.zeros((len(index), DRAWS), np.uint64)
    for word in (np.uint64(seed), np.uint64(epoch), index[:, None], np.arange(DRAWS)[None]):
        state = mix(state + np.asarray(word).astype(np.uint64))
    return (state >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def mix(state: np.ndarray) -> np.ndarray:
    """One step of SplitMix64 on uint64 words; sums and products wrap."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def flip(batch: DeviceBatch, flipped: Tensor) -> DeviceBatch:
    """Mirror the samples where `flipped`, bool [B], is true."""
    where = flipped[:, None, None, None]
    rgb01, zoe_m, depth_m, objects = (
        torch.where(where, field.flip(3), field)
        for field in (batch.rgb01, batch.zoe_m, batch.depth_m, batch.objects)
    )
    return DeviceBatch(rgb01, zoe_m, depth_m, objects, batch.index)


def crop(batch: DeviceBatch, size: Tensor, place: Tensor) -> DeviceBatch:
    """Blow up a window of each sample to the whole picture.

    Metres stay metres: the refiner is asked for the same correction of a nearer-looking scene.

    Args:
        size: of the window, as a share of the sides, [B].
        place: of its centre, -1..1 in x and y over where the window fits, [B, 2].
    """
    theta = torch.zeros(len(size), 2, 3, device=size.device)
    theta[:, 0, 0] = theta[:, 1, 1] = size
    theta[:, :, 2] = place * (1 - size)[:, None]
    grid = F.affine_grid(theta, list(batch.zoe_m.shape), align_corners=False)
    fields = torch.cat([batch.zoe_m, batch.depth_m, batch.objects.float()], 1)
    near = F.grid_sample(fields, grid, "nearest", "border", align_corners=False)
    rgb01 = F.grid_sample(batch.rgb01, grid, "bilinear", "border", align_corners=False)
    rgb01 = rgb01.contiguous(memory_format=torch.channels_last)
    return DeviceBatch(rgb01, near[:, :1], near[:, 1:2], near[:, 2:].byte(), batch.index)


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
