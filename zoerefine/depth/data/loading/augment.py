"""Random changes of a batch on the device; a sample's are a function of (seed, epoch, index)."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoerefine.base.config.data_keys import AugmentKeys
from zoerefine.depth.data.loading.prefetch import DeviceBatch

# Random numbers a sample: flip, brightness, contrast, saturation, scale of the pseudo depth, crop
# size, crop x and y, scale of both depths, whether to cut out, then its height, width, y, x.
DRAWS = 14
CUTOUT_SIDES = 0.2, 0.6  # shortest and longest side of a cutout, as a share of the picture's


@dataclass(frozen=True)
class Augmentation:
    """What is changed, and how much.

    Attributes:
        flip: probability that a sample is mirrored, in all fields.
        crop: a window of at least 1 - crop of the sides is enlarged to the full size, in all
            fields; depths and ids are never interpolated.
        color: brightness, contrast and saturation of RGB change by up to this share.
        pseudo_scale: the pseudo depth is multiplied by a random factor; this is the standard
            deviation of its logarithm. It teaches a refiner to distrust the pseudo depth's scale.
        depth_scale: the same for pseudo depth and truth, by one factor for both: a smaller or
            larger room. It teaches that the depth of a room follows its pseudo depth.
        cutout: probability that a rectangle of RGB becomes the picture's mean colour. What is
            there can be learned from the pseudo depth alone.
    """

    flip: float = 0.0
    crop: float = 0.0
    color: float = 0.0
    pseudo_scale: float = 0.0
    depth_scale: float = 0.0
    cutout: float = 0.0

    @classmethod
    def configured(cls, options: AugmentKeys) -> "Augmentation":
        """As the keys of AUGMENT say."""
        return cls(**{name.lower(): value for name, value in options.items()})

    def __call__(self, batch: DeviceBatch, seed: int, epoch: int) -> DeviceBatch:
        """Change a batch; all that is random is a function of seed, epoch and sample index."""
        draws = torch.from_numpy(uniform_numbers(batch.index.numpy(), seed, epoch, DRAWS))
        uniform = draws.to(batch.zoe_m.device, non_blocking=True)
        signed = uniform * 2 - 1
        if self.flip:
            batch = flip(batch, draws[:, 0] < self.flip)
        if self.crop:
            batch = crop(batch, 1 - self.crop * uniform[:, 5], signed[:, 6:8])
        rgb01, zoe_m, depth_m, points = batch.rgb01, batch.zoe_m, batch.depth_m, batch.points
        if self.color:
            rgb01 = jitter_color(rgb01, self.color * signed[:, 1:4])
        if self.cutout:
            rgb01 = cut_out(rgb01, uniform[:, 9] < self.cutout, uniform[:, 10:14])
        if self.pseudo_scale:
            zoe_m = zoe_m * random_factors(self.pseudo_scale, signed[:, 4])
        if self.depth_scale:
            factors = random_factors(self.depth_scale, signed[:, 8])
            zoe_m, depth_m = zoe_m * factors, depth_m * factors
            if points is not None:
                points = torch.cat([points[..., :2], points[..., 2:] * factors[:, 0]], -1)
        return DeviceBatch(rgb01, zoe_m, depth_m, batch.objects, batch.index, points)


def uniform_numbers(index: np.ndarray, seed: int, epoch: int, count: int) -> np.ndarray:
    """Uniform numbers in [0, 1), float32 [B, count]; a row is a function of (seed, epoch, index).

    Source: the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators", 2014), applied to one word after the other.
    """
    state = np.zeros((len(index), count), np.uint64)
    for word in (np.uint64(seed), np.uint64(epoch), index[:, None], np.arange(count)[None]):
        state = mix(state + np.asarray(word).astype(np.uint64))
    return (state >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def mix(state: np.ndarray) -> np.ndarray:
    """One step of SplitMix64 on uint64 words; sums and products overflow on purpose."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def flip(batch: DeviceBatch, flipped: Tensor) -> DeviceBatch:
    """Mirror the samples where `flipped`, bool [B] on the CPU, is true."""
    samples = flipped.nonzero()[:, 0]  # on the CPU: on a GPU, nonzero() would wait for the GPU
    samples = samples.to(batch.zoe_m.device, non_blocking=True)

    def mirrored(field: Tensor) -> Tensor:
        rows = field.permute(0, 2, 3, 1)  # [B, H, W, C], the order in memory
        rows = rows.index_copy(0, samples, rows.index_select(0, samples).flip(2))
        return rows.permute(0, 3, 1, 2)

    fields = (batch.rgb01, batch.zoe_m, batch.depth_m, batch.objects)
    rgb01, zoe_m, depth_m, objects = map(mirrored, fields)
    points = batch.points
    if points is not None:
        points = points.clone()
        points[samples, :, 0] = batch.zoe_m.shape[3] - 1 - points[samples, :, 0]
    return DeviceBatch(rgb01, zoe_m, depth_m, objects, batch.index, points)


def crop(batch: DeviceBatch, size: Tensor, place: Tensor) -> DeviceBatch:
    """Enlarge a window of each sample to the full size.

    Depth values are kept, although the scene looks nearer and the floor appears in other rows.
    Size and row then say less about scale; that is the price of the variety.

    Args:
        size: of the window, as a share of the sides, [B].
        place: of its centre, -1..1 in x and y over the range where the window fits, [B, 2].
    """
    theta = torch.zeros(len(size), 2, 3, device=size.device)
    theta[:, 0, 0] = theta[:, 1, 1] = size
    theta[:, :, 2] = place * (1 - size)[:, None]
    grid = F.affine_grid(theta, list(batch.zoe_m.shape), align_corners=False)
    fields = torch.cat([batch.zoe_m, batch.depth_m, batch.objects.float()], 1)
    near = F.grid_sample(fields, grid, "nearest", "border", align_corners=False)
    rgb01 = F.grid_sample(batch.rgb01, grid, "bilinear", "border", align_corners=False)
    rgb01 = rgb01.contiguous(memory_format=torch.channels_last)
    points = cropped_points(batch.points, batch.zoe_m.shape[2:], theta)
    return DeviceBatch(rgb01, near[:, :1], near[:, 1:2], near[:, 2:].byte(), batch.index, points)


def cropped_points(points: Tensor | None, size: torch.Size, theta: Tensor) -> Tensor | None:
    """Metric points in the enlarged windows; those outside are left out."""
    if points is None:
        return None
    sides = torch.tensor([size[1], size[0]], device=points.device)
    old = (2 * points[..., :2] + 1) / sides - 1  # -1..1 over the picture, as in affine_grid
    new = (old - theta[:, None, :, 2]) / theta[:, None, [0, 1], [0, 1]]
    inside = (new.abs() < 1).all(-1, keepdim=True)
    return torch.cat([((new + 1) * sides - 1) / 2, points[..., 2:]], -1) * inside


def jitter_color(rgb01: Tensor, change: Tensor) -> Tensor:
    """Change brightness, contrast and saturation of [B, 3, H, W] by the shares in [B, 3].

    In turn: x -> b x, x -> m + c (x - m) with the picture's mean m, and x -> l + s (x - l) with
    the mean l of a pixel's channels. Together they are one linear map of a pixel's colours, the
    same for the whole picture, plus a constant grey.
    """
    b, c, s = (1 + change[:, i, None, None] for i in range(3))
    mean = rgb01.mean((1, 2, 3))[:, None, None]
    colors = b * c * (s * torch.eye(3, device=s.device) + (1 - s) / 3)  # [B, 3, 3]
    pixels = rgb01.permute(0, 2, 3, 1).flatten(1, 2)  # [B, H W, 3], the order in memory
    pixels = torch.bmm(pixels, colors).add_(b * (1 - c) * mean).clamp_(0, 1)
    return pixels.unflatten(1, rgb01.shape[2:]).permute(0, 3, 1, 2)


def cut_out(rgb01: Tensor, chosen: Tensor, place: Tensor) -> Tensor:
    """Paint a rectangle of each chosen sample in the picture's mean colour.

    Args:
        rgb01: [B, 3, H, W].
        chosen: bool [B].
        place: height, width, y and x, each in 0..1 over the range that keeps it in the picture,
            [B, 4].
    """
    least, most = CUTOUT_SIDES
    sides = least + (most - least) * place[:, :2]
    starts = (1 - sides) * place[:, 2:]
    inside = chosen[:, None, None]
    for axis, count in enumerate(rgb01.shape[2:]):
        at = (torch.arange(count, device=rgb01.device) + 0.5) / count  # [H] or [W]
        start, end = starts[:, axis, None], (starts + sides)[:, axis, None]
        within = (at >= start) & (at < end)  # [B, H] or [B, W]
        inside = inside & within.unsqueeze(2 - axis)
    mean = rgb01.mean((2, 3), keepdim=True)
    return torch.where(inside[:, None], mean, rgb01)


def random_factors(deviation: float, uniform: Tensor) -> Tensor:
    """Factors [B, 1, 1, 1] whose logarithm has this standard deviation, from numbers in -1..1."""
    return torch.exp(deviation * normal(uniform))[:, None, None, None]


def normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers from uniform ones in -1..1."""
    return torch.erfinv(uniform.clamp(-0.999, 0.999)) * 2**0.5
