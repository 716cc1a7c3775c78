"""What benchmarks of quality share: baselines, a training loop, frames in order."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from zoerefine.depth.data.loading.augment import Augmentation
from zoerefine.depth.data.loading.prefetch import DeviceBatch, Prefetcher
from zoerefine.depth.data.loading.sampler import OrderOptions
from zoerefine.depth.metrics import valid_pixels
from zoerefine.depth.model.networks import ResNetUNet
from zoerefine.depth.training.trainer import Trainer

RIDGES = (1e-2, 1e-1, 1.0, 10.0)


class Direct(nn.Module):
    """The first implementation's network: RGB and pseudo depth to depth, through a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.net = ResNetUNet(64)
        self.net.conv1 = nn.Conv2d(4, 64, 7, 2, 3, bias=False)  # RGB and depth, no rows
        nn.init.normal_(self.net.head.weight, std=0.05)
        nn.init.constant_(self.net.head.bias, 2.0)  # type: ignore[arg-type]  # positive at first
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor:
        inputs = torch.cat([(rgb01 - self.mean) / self.std, zoe_m], 1)  # type: ignore[operator]
        depth: Tensor = self.net(inputs).float().relu()
        return depth


class DirectTrainer(Trainer):
    """Trains the first implementation's network in the same loop."""

    def make_refiner(self) -> nn.Module:
        return Direct()


class ScaleAndShift(nn.Module):
    """depth = a zoe + b; a and b of a picture are predicted from its statistics.

    By ridge regression, with the ridge of the smallest leave-one-clip-out error. `of_clip` is the
    clip of each frame of the cache.
    """

    def __init__(self, batches: Iterable[DeviceBatch], of_clip: np.ndarray) -> None:
        super().__init__()
        features, targets, clips = [], [], []
        for batch in batches:
            mask = valid_pixels(batch.depth_m, batch.zoe_m)
            for picture_statistics, zoe, depth, valid, clip in zip(
                statistics_of(batch.rgb01, batch.zoe_m), batch.zoe_m, batch.depth_m, mask,
                of_clip[batch.index.numpy()], strict=True,
            ):  # fmt: skip
                if valid.sum() < 100:
                    continue
                # Least squares of the relative error.
                d = depth[valid]
                left = torch.stack([zoe[valid] / d, 1 / d], 1)
                features.append(picture_statistics)
                targets.append(torch.linalg.lstsq(left, torch.ones_like(d)[:, None]).solution[:, 0])
                clips.append(clip)
        x, y = torch.stack(features).double(), torch.stack(targets).double().cpu()
        self.center, self.spread = x.mean(0), x.std(0).clamp(min=1e-6)
        x = self.standard(x)
        best = min(RIDGES, key=lambda ridge: left_out_error(x, y, np.array(clips), ridge))
        self.solution = solve(x, y, best)

    def standard(self, features: Tensor) -> Tensor:
        """Features of mean 0 and spread 1, and a constant."""
        x = (features.double() - self.center) / self.spread
        return torch.cat([x, torch.ones(len(x), 1)], 1)

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor:
        ab = self.standard(statistics_of(rgb01, zoe_m)) @ self.solution  # [B, 2]
        a, b = (ab[:, k].float().to(zoe_m.device)[:, None, None, None] for k in (0, 1))
        return a * zoe_m + b


def solve(x: Tensor, y: Tensor, ridge: float) -> Tensor:
    """Ridge regression of y on x; the last column of x, the constant, is not penalized."""
    penalty = torch.eye(x.shape[1], dtype=x.dtype)
    penalty[-1, -1] = 0
    return torch.linalg.solve(x.T @ x + ridge * len(x) * penalty, x.T @ y)


def left_out_error(x: Tensor, y: Tensor, clips: np.ndarray, ridge: float) -> float:
    """Mean absolute error over pictures, each predicted without its clip."""
    total = 0.0
    for clip in np.unique(clips):
        out = torch.from_numpy(clips == clip)
        total += (x[out] @ solve(x[~out], y[~out], ridge) - y[out]).abs().sum().item()
    return total / len(x)


def statistics_of(rgb01: Tensor, zoe_m: Tensor) -> Tensor:
    """Log-depth quantiles, means of thirds, colours and spread of each picture, [B, 12]."""
    rgb01, log = rgb01.cpu(), zoe_m.cpu().clamp(min=0.05).log()
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    quantiles = torch.quantile(log[:, :, ::4, ::4].flatten(1), levels, dim=1).T
    height = log.shape[2]
    thirds = [part.mean((1, 2, 3)) for part in log.split(-(-height // 3), 2)]
    colors = rgb01.mean((2, 3))
    return torch.cat([quantiles, torch.stack(thirds, 1), colors, log.std((1, 2, 3))[:, None]], 1)


def train_all_epochs(trainer: Trainer, change: Augmentation) -> None:
    """Train to the end of the trainer's epochs, and evaluate nothing on the way."""
    seed = trainer.cfg.SEED
    for epoch in range(trainer.epochs):
        for batch in trainer.prefetch(trainer.loader, lambda b, e=epoch: change(b, seed, e)):
            trainer.train_step(batch)


def in_order(trainer: Trainer, scenes: tuple[str, ...]) -> Prefetcher:
    """The frames of some scenes, each once, in their order."""
    indices = trainer.cache.indices(scenes)
    return trainer.prefetch(trainer.loader_of(indices, 0, OrderOptions("sequential")))
