"""Depth metrics as ZoeDepth's evaluation defines them, accumulated exactly over a data set.

The protocol (ZoeDepth `evaluate.py`): predictions are clamped to [NEAREST_M, farthest_m], pixels
with NEAREST_M < truth < farthest_m are valid, each metric is the mean of its value *per picture*,
and nothing is rescaled to the truth. Sums are float64, so batch size does not matter.

To add a metric, write a `Metric` and its row in `registries.METRICS`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.base import registries
from zoerefine.base.depth_limits import FARTHEST_M, NEAREST_M
from zoerefine.base.machine import device  # noqa: F401  (called from several threads)

MIN_OBJECT_PIXELS = 8  # a smaller object has no distance


@dataclass(frozen=True)
class PictureErrors:
    """Depth, truth and their valid pixels, from which each metric computes one value a picture.

    Attributes:
        depth, truth: float64 [B, 1, H, W], metres; truth is 1 at invalid pixels.
        mask: bool [B, 1, H, W], valid pixels.
    """

    depth: Tensor
    truth: Tensor
    mask: Tensor

    @cached_property
    def count(self) -> Tensor:
        """Valid pixels of each picture, float64 [B]."""
        return self.mask.sum((1, 2, 3)).double()

    def mean(self, values: Tensor) -> Tensor:
        """Mean of [B, 1, H, W] over each picture's valid pixels, [B]; NaN where it has none."""
        return torch.where(self.mask, values, 0.0).sum((1, 2, 3)) / self.count

    @cached_property
    def difference(self) -> Tensor:
        return self.depth - self.truth

    @cached_property
    def log_ratio(self) -> Tensor:
        return self.depth.log() - self.truth.log()

    @cached_property
    def mean_square_log(self) -> Tensor:
        return self.mean(self.log_ratio.square())


@dataclass(frozen=True)
class Metric:
    """A metric: float64 [B] from `PictureErrors`, and whether lower values are better."""

    compute: Callable[[PictureErrors], Tensor]
    lower_is_better: bool = True


@Metric
def abs_rel(e: PictureErrors) -> Tensor:
    """Mean of |depth - truth| / truth."""
    return e.mean(e.difference.abs() / e.truth)


@Metric
def sq_rel(e: PictureErrors) -> Tensor:
    """Mean of (depth - truth)^2 / truth, metres."""
    return e.mean(e.difference.square() / e.truth)


@Metric
def rmse(e: PictureErrors) -> Tensor:
    """Root of the mean squared error, metres."""
    return e.mean(e.difference.square()).sqrt()


@Metric
def rmse_log(e: PictureErrors) -> Tensor:
    """Root of the mean squared error of log depth."""
    return e.mean_square_log.sqrt()


@Metric
def log10(e: PictureErrors) -> Tensor:
    """Mean absolute error of log10 depth."""
    return e.mean(e.log_ratio.abs()) / math.log(10)


@Metric
def silog(e: PictureErrors) -> Tensor:
    """100 times the standard deviation of the error of log depth: scale does not matter."""
    variance = e.mean_square_log - e.mean(e.log_ratio).square()
    return 100 * variance.clamp(min=0).sqrt()


def delta(e: PictureErrors, power: int) -> Tensor:
    """Share of pixels where depth and truth differ by less than a factor 1.25 ** power."""
    ratio = torch.maximum(e.depth / e.truth, e.truth / e.depth)
    return e.mean((ratio < 1.25**power).double())


delta1, delta2, delta3 = (
    Metric(partial(delta, power=power), lower_is_better=False) for power in (1, 2, 3)
)
NAMES = tuple(registries.METRICS)  # in the order of the columns of `picture_metrics`


@cache
def table() -> dict[str, Metric]:
    """Every metric by name, in the order of `NAMES`."""
    return {name: registries.METRICS.load(name) for name in NAMES}


def picture_metrics(
    depth_m: Tensor, truth_m: Tensor, mask: Tensor, farthest_m: float = FARTHEST_M
) -> Tensor:
    """Every metric of every picture.

    Args:
        depth_m, truth_m: float [B, 1, H, W], metres.
        mask: bool [B, 1, H, W], valid pixels.
        farthest_m: predictions are clamped to it.

    Returns:
        float64 [B, len(NAMES)]; NaN for a picture without a valid pixel.
    """
    errors = PictureErrors(
        depth_m.double().clamp(NEAREST_M, farthest_m),
        torch.where(mask, truth_m.double(), 1.0),
        mask,
    )
    return torch.stack([metric.compute(errors) for metric in table().values()], 1)


def arrow(name: str) -> str:
    """The direction in which a metric improves, for tables."""
    return "↓" if table()[name].lower_is_better else "↑"


class RunningMean:
    """A mean of numbers, or of rows of them, whose bits do not depend on how they are grouped."""

    def __init__(self) -> None:
        self.total: Any = np.float64(0)
        self.count = 0

    def add(self, values: Tensor | np.ndarray) -> None:
        """Add numbers [n], or rows [n, columns]."""
        # One at a time: the order of addition, and so the last bit, does not depend on how pictures
        # were grouped into batches.
        for value in values if isinstance(values, np.ndarray) else values.double().cpu().numpy():
            self.total = self.total + value
            self.count += 1

    def merge(self, other: "RunningMean") -> None:
        """Add another's sums."""
        self.total = self.total + other.total
        self.count += other.count

    def compute(self) -> Any:
        """The mean, or that of each column; None without a number."""
        return (self.total / self.count).tolist() if self.count else None


class DepthMetrics(RunningMean):
    """Means over pictures; pictures without a valid pixel are left out."""

    def add(self, rows: Tensor | np.ndarray) -> None:
        """Add pictures' metrics [B, len(NAMES)] from `picture_metrics`.

        A row with nothing but NaN is a picture without a valid pixel. A NaN depth makes the means
        NaN, but not the deltas, so its row is kept and NaN propagates to the means.
        """
        values = rows if isinstance(rows, np.ndarray) else rows.cpu().numpy()
        super().add(values[~np.isnan(values).all(1)])

    def compute(self) -> dict[str, float]:
        """Metrics by name; empty without a picture."""
        return dict(zip(NAMES, super().compute() or (), strict=False))


def ratios(figures: dict[str, Any], to: dict[str, Any]) -> dict[str, Any]:
    """Each figure divided by the figure of the same name in `to`; left out where that is 0.

    Nested groups stay nested.
    """
    found: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            found[name] = ratios(value, to.get(name, {}))
        elif to.get(name):
            found[name] = value / to[name]
    return found


def log_error(
    depth_m: Tensor, truth_m: Tensor, mask: Tensor, farthest_m: float = FARTHEST_M
) -> Tensor:
    """log depth - log truth at valid pixels, else 0; all [B, 1, H, W]."""
    depth = depth_m.clamp(NEAREST_M, farthest_m)
    return torch.where(mask, depth.log() - torch.where(mask, truth_m, 1.0).log(), 0.0)


def coverage(depth_m: Tensor, spread: Tensor, truth_m: Tensor, mask: Tensor) -> Tensor:
    """The share of each picture's valid pixels with |log depth - log truth| <= spread: float64 [B].

    NaN for a picture without a valid pixel.
    """
    truth = torch.where(mask, truth_m, 1.0)
    inside = (depth_m.clamp(min=NEAREST_M).log() - truth.log()).abs() <= spread
    return (inside & mask).sum((1, 2, 3)).double() / mask.sum((1, 2, 3))


def boundary_f1(depth_m: Tensor, truth_m: Tensor, mask: Tensor) -> Tensor:
    """Agreement of depth edges with the truth's edges: float64 [B], 0 to 1.

    The scale-invariant boundary F1 of Depth Pro (Bochkovskii et al. 2024, section 3). An edge is
    a pair of valid neighbours whose depths have a ratio above t. F1 is over pairs in four
    directions, averaged over t from 1.05 to 1.25 with weight t. Only values of t at which the
    truth has edges enter, so the same pictures count for every depth; NaN where the truth has no
    edge at all.
    """
    total = torch.zeros(len(depth_m), dtype=torch.float64, device=depth_m.device)
    weight = torch.zeros_like(total)
    pairs = [neighbour_ratios(depth_m, truth_m, mask, axis) for axis in (-1, -2)]
    for t in torch.linspace(1.05, 1.25, 10, dtype=torch.float64).tolist():
        hits, predicted, actual = (total * 0 for _ in range(3))
        for depth_ratio, truth_ratio, both in pairs:
            for direction in (1, -1):
                edge = both & (direction * depth_ratio > math.log(t))
                true_edge = both & (direction * truth_ratio > math.log(t))
                hits = hits + (edge & true_edge).sum((1, 2, 3))
                predicted = predicted + edge.sum((1, 2, 3))
                actual = actual + true_edge.sum((1, 2, 3))
        total += t * 2 * hits / (predicted + actual).clamp(min=1)
        weight += t * (actual > 0).double()
    return total / weight


def neighbour_ratios(
    depth_m: Tensor, truth_m: Tensor, mask: Tensor, axis: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Log ratios of neighbours along an axis, of depth and truth, and where both are valid."""
    length = mask.shape[axis] - 1
    both = mask.narrow(axis, 0, length) & mask.narrow(axis, 1, length)
    depth, truth = (one.clamp(min=NEAREST_M).log().diff(dim=axis) for one in (depth_m, truth_m))
    return depth, truth, both


def object_distances(depth_m: Tensor, truth_m: Tensor, objects: Tensor, mask: Tensor) -> Tensor:
    """Distance of each moving object in depth and in truth: float64 [n, 2], metres.

    An object is an id of a picture with at least `MIN_OBJECT_PIXELS` valid pixels. Its distance is
    the median depth of these pixels.
    """
    rows = []
    for depth, truth, ids, valid in zip(depth_m, truth_m, objects, mask, strict=True):
        for number in ids[valid].unique().tolist():
            own = valid & (ids == number)
            if number and own.sum() >= MIN_OBJECT_PIXELS:
                rows.append(torch.stack([depth[own].median(), truth[own].median()]).double())
    return torch.stack(rows) if rows else depth_m.new_zeros((0, 2)).double()


def valid_pixels(truth_m: Tensor, zoe_m: Tensor, farthest_m: float = FARTHEST_M) -> Tensor:
    """Pixels with a truth inside the protocol's range and a pseudo depth: bool [B, 1, H, W]."""
    return (truth_m > NEAREST_M) & (truth_m < farthest_m) & (zoe_m > 0)
