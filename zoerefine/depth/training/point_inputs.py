"""Metric points of training and validation batches: the data's, else simulated ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from zoerefine.base.config import Config
from zoerefine.base.config.data_keys import PointKeys
from zoerefine.depth.data.loading.augment import Augmentation, uniform_numbers
from zoerefine.depth.data.loading.prefetch import DeviceBatch, Transform
from zoerefine.depth.points.simulate import ZONES, PointSimulation, draws_of, measured
from zoerefine.depth.points.spread import spread_with_hints

STREAM = 0x706F696E7473  # added to the seed: other random numbers than the augmentation's
FRAME_DRAWS = 5  # whether there are points, their kind, their number, noise, outliers
EVALUATED_NOISE = 0.03
CALIBRATION = (
    PointSimulation("random", 50),
    PointSimulation("random", 5),
    PointSimulation("corners", 50),
    PointSimulation("zones"),
    PointSimulation("beam", 50),
)


def training_transform(cfg: Config, epoch: int) -> Transform:
    """What is done to the training batches of an epoch on the device."""
    augment = partial(Augmentation.configured(cfg.AUGMENT), seed=cfg.SEED, epoch=epoch)
    if not cfg.MODEL.POINTS:
        return augment
    points = TrainingPoints.configured(cfg.POINTS)

    def transform(batch: DeviceBatch) -> DeviceBatch:
        batch = augment(batch)
        return correct(batch, points(batch, cfg.SEED, epoch))

    return transform


def correct(batch: DeviceBatch, points: Tensor) -> DeviceBatch:
    """A batch as a refiner with points sees it: `zoe_m` corrected by points [B, N, 4]."""
    corrected_m, hints01 = spread_with_hints(batch.zoe_m, points)
    return replace(batch, zoe_m=corrected_m, hints01=hints01, points=points)


def with_all_points(batches: Iterable[DeviceBatch]) -> Iterator[DeviceBatch]:
    """Each batch as a refiner sees it with the data's points, or with every kind of CALIBRATION."""
    for batch in batches:
        if batch.points is not None:
            yield correct(batch, batch.points)
            continue
        for simulation in CALIBRATION:
            yield correct(batch, simulation(batch.depth_m, batch.rgb01, batch.index.numpy()))


def evaluated_points(batch: DeviceBatch, count: int) -> Tensor:
    """The points that a batch is evaluated with, [B, N, 4]: the data's, or `count` simulated ones.

    They are the same at every call.
    """
    if batch.points is not None:
        return batch.points
    simulation = PointSimulation("random", count, EVALUATED_NOISE)
    return simulation(batch.depth_m, batch.rgb01, batch.index.numpy())


@dataclass(frozen=True)
class TrainingPoints:
    """Points of training frames, of another kind, number and quality in each.

    Attributes:
        kinds: names of `registries.POINT_KINDS`, each as likely as any other.
        most: the number of points is log-uniform between 1 and this.
        none: probability that a frame has no points.
        noise, outliers: the largest; each frame has a random share of them.
    """

    kinds: tuple[str, ...]
    most: int
    none: float
    noise: float
    outliers: float

    @classmethod
    def configured(cls, options: PointKeys) -> "TrainingPoints":
        """As the keys of POINTS say."""
        return cls(
            tuple(options.KINDS), options.MOST, options.NONE, options.NOISE, options.OUTLIERS
        )

    def __call__(self, batch: DeviceBatch, seed: int, epoch: int) -> Tensor:
        """Points [B, N, 4]; a frame's are a function of seed, epoch and its index."""
        count = FRAME_DRAWS + draws_of(self.most)
        numbers = uniform_numbers(batch.index.numpy(), seed + STREAM, epoch, count)
        draws = torch.from_numpy(numbers).to(batch.depth_m.device, non_blocking=True)
        of_frames, draws = draws[:, :FRAME_DRAWS], draws[:, FRAME_DRAWS:]
        if batch.points is not None:
            return self.some_of(batch.points, of_frames)
        chosen = (of_frames[:, 1] * len(self.kinds)).long()
        noise, outliers = self.noise * of_frames[:, 3], self.outliers * of_frames[:, 4]
        found = batch.depth_m.new_zeros(len(draws), max(self.most, ZONES**2), 4)
        for number, kind in enumerate(self.kinds):
            points = measured(kind, batch.depth_m, batch.rgb01, self.most, draws, noise, outliers)
            points = spaced(points, (self.most + 1) ** of_frames[:, 2])
            kept = (chosen == number) & (of_frames[:, 0] >= self.none)
            found[:, : points.shape[1]] += points * kept[:, None, None]
        return found

    def some_of(self, points: Tensor, draws: Tensor) -> Tensor:
        """The data's points [B, N, 4], all of them or fewer, in the share of frames with points."""
        there = (points[..., 2] > 0).sum(1)
        kept = spaced(points, (there + 1) ** draws[:, 2] * points.shape[1] / there.clamp(min=1))
        return kept * (draws[:, 0] >= self.none)[:, None, None]


def spaced(points: Tensor, counts: Tensor) -> Tensor:
    """About so many of each frame's points, evenly spaced: [B, N, 4], counts [B]."""
    size = points.shape[1]
    steps = torch.arange(size + 1, device=points.device) * (counts.clamp(max=size) / size)[:, None]
    kept = steps.floor().diff(dim=1) > 0
    return points * kept[..., None]
