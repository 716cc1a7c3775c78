"""Metric points of training and validation batches: the data's, else simulated ones."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
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

    def transform(batch: DeviceBatch) -> DeviceBatch:
        batch = augment(batch)
        return correct(batch, training_points(cfg.POINTS, batch, cfg.SEED, epoch))

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


def training_points(options: PointKeys, batch: DeviceBatch, seed: int, epoch: int) -> Tensor:
    """Points of training frames [B, N, 4], of another kind, number and quality in each.

    Of the data's points, all of them or fewer. The number is log-uniform from 1 on, and each frame
    has a random share of the largest noise and outliers. A frame's points are a function of seed,
    epoch and its index.
    """
    most = options.MOST
    count = FRAME_DRAWS + draws_of(most)
    numbers = uniform_numbers(batch.index.numpy(), seed + STREAM, epoch, count)
    draws = torch.from_numpy(numbers).to(batch.depth_m.device, non_blocking=True)
    of_frames, draws = draws[:, :FRAME_DRAWS], draws[:, FRAME_DRAWS:]
    has_points = of_frames[:, 0] >= options.NONE
    if (points := batch.points) is not None:
        there = (points[..., 2] > 0).sum(1)
        counts = (there + 1) ** of_frames[:, 2] * points.shape[1] / there.clamp(min=1)
        return spaced(points, counts) * has_points[:, None, None]
    chosen = (of_frames[:, 1] * len(options.KINDS)).long()
    noise, outliers = options.NOISE * of_frames[:, 3], options.OUTLIERS * of_frames[:, 4]
    found = batch.depth_m.new_zeros(len(draws), max(most, ZONES**2), 4)
    for number, kind in enumerate(options.KINDS):
        points = measured(kind, batch.depth_m, batch.rgb01, most, draws, noise, outliers)
        points = spaced(points, (most + 1) ** of_frames[:, 2])
        kept = (chosen == number) & has_points
        found[:, : points.shape[1]] += points * kept[:, None, None]
    return found


def spaced(points: Tensor, counts: Tensor) -> Tensor:
    """About so many of each frame's points, evenly spaced: [B, N, 4], counts [B]."""
    size = points.shape[1]
    steps = torch.arange(size + 1, device=points.device) * (counts.clamp(max=size) / size)[:, None]
    kept = steps.floor().diff(dim=1) > 0
    return points * kept[..., None]
