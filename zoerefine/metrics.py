"""Depth metrics as ZoeDepth's evaluation defines them, accumulated exactly over a data set.

The protocol (ZoeDepth `evaluate.py`): predictions are clamped to [NEAREST_M, FARTHEST_M], pixels
count where NEAREST_M < truth < FARTHEST_M, each metric is the mean of its value *per picture*,
and nothing is rescaled to the truth. Sums are kept in float64, so batch size does not matter.
"""

import math
from typing import Any

import torch
from torch import Tensor

NEAREST_M = 1e-3
FARTHEST_M = 10.0
OBJECT_PIXELS = 8  # of an object, from which its distance is told
NAMES = (
    "abs_rel",
    "sq_rel",
    "rmse",
    "rmse_log",
    "log10",
    "silog",
    "delta1",
    "delta2",
    "delta3",
)
LOWER_IS_BETTER = frozenset(NAMES) - {"delta1", "delta2", "delta3"}


def picture_metrics(depth_m: Tensor, truth_m: Tensor, mask: Tensor) -> Tensor:
    """Every metric of every picture.

    Args:
        depth_m, truth_m: float [B, 1, H, W], metres.
        mask: bool [B, 1, H, W], the pixels that count.

    Returns:
        float64 [B, len(NAMES)]; NaN for a picture without a pixel that counts.
    """
    depth = depth_m.double().clamp(NEAREST_M, FARTHEST_M)
    truth = torch.where(mask, truth_m.double(), 1.0)
    count = mask.sum((1, 2, 3)).double()

    def mean(values: Tensor) -> Tensor:
        return torch.where(mask, values, 0.0).sum((1, 2, 3)) / count  # [B]

    error = depth - truth
    log_error = depth.log() - truth.log()
    ratio = torch.maximum(depth / truth, truth / depth)
    mean_log_square = mean(log_error.square())
    log_variance = (mean_log_square - mean(log_error).square()).clamp(min=0)
    columns = [
        mean(error.abs() / truth),
        mean(error.square() / truth),
        mean(error.square()).sqrt(),
        mean_log_square.sqrt(),
        mean(log_error.abs()) / torch.log(torch.tensor(10.0, dtype=torch.float64)),
        100 * log_variance.sqrt(),
        *(mean((ratio < 1.25**power).double()) for power in (1, 2, 3)),
    ]
    return torch.stack(columns, 1)


class DepthMetrics:
    """Means over pictures; those without a pixel that counts are left out."""

    def __init__(self) -> None:
        self.sums = torch.zeros(len(NAMES), dtype=torch.float64)
        self.pictures = 0

    def add(self, rows: Tensor) -> None:
        """Add pictures' metrics [B, len(NAMES)] from `picture_metrics`.

        A row of NaN alone is a picture without a pixel that counts. Where a depth itself is NaN
        the deltas are not, and the means become NaN, as they should.
        """
        # One picture after another: the order of addition, and so the last bit, is the same
        # however the pictures were grouped into batches.
        for row in rows[~rows.isnan().all(1)].cpu():
            self.sums += row
            self.pictures += 1

    def merge(self, other: "DepthMetrics") -> None:
        """Add what another has added up."""
        self.sums += other.sums
        self.pictures += other.pictures

    def compute(self) -> dict[str, float]:
        """Metrics by name; empty where no picture counted."""
        if not self.pictures:
            return {}
        return dict(zip(NAMES, (self.sums / self.pictures).tolist(), strict=True))


class Mean:
    """An exact mean of numbers that come in any grouping."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, values: Tensor) -> None:
        """Add numbers [n]."""
        for value in values.double().tolist():
            self.total += value
            self.count += 1

    def merge(self, other: "Mean") -> None:
        """Add what another has added up."""
        self.total += other.total
        self.count += other.count

    def compute(self) -> float | None:
        """The mean, or None where there was nothing."""
        return self.total / self.count if self.count else None


def shares(figures: dict[str, Any], of: dict[str, Any]) -> dict[str, Any]:
    """Each figure's share of the one of the same name, in groups as they are; none of zero's."""
    found: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            found[name] = shares(value, of.get(name, {}))
        elif of.get(name):
            found[name] = value / of[name]
    return found


def log_error(depth_m: Tensor, truth_m: Tensor, mask: Tensor) -> Tensor:
    """log depth - log truth where `mask`, else 0; all [B, 1, H, W]."""
    depth = depth_m.clamp(NEAREST_M, FARTHEST_M)
    return torch.where(mask, depth.log() - torch.where(mask, truth_m, 1.0).log(), 0.0)


def boundary_f1(depth_m: Tensor, truth_m: Tensor, mask: Tensor) -> Tensor:
    """How well depth edges lie where the truth's do: float [B], 0 to 1; NaN where it has none.

    The scale-invariant boundary F1 of Depth Pro (Bochkovskii et al. 2024, section 3): an edge is
    a pair of neighbours whose depths' ratio is above t; F1 over the pairs in four directions,
    averaged over t from 1.05 to 1.25 with weight t, over those at which the truth has edges (so
    that the same pictures count for every depth). Pairs count where both pixels do.
    """
    total = torch.zeros(len(depth_m), dtype=torch.float64, device=depth_m.device)
    weight = torch.zeros_like(total)
    pairs = [neighbour_ratios(depth_m, truth_m, mask, axis) for axis in (-1, -2)]
    for t in torch.linspace(1.05, 1.25, 10, dtype=torch.float64).tolist():
        hits, found, due = (total * 0 for _ in range(3))
        for ours, theirs, both in pairs:
            for direction in (1, -1):
                edge = both & (direction * ours > math.log(t))
                wanted = both & (direction * theirs > math.log(t))
                hits = hits + (edge & wanted).sum((1, 2, 3))
                found = found + edge.sum((1, 2, 3))
                due = due + wanted.sum((1, 2, 3))
        total += t * 2 * hits / (found + due).clamp(min=1)
        weight += t * (due > 0).double()
    return total / weight


def neighbour_ratios(
    depth_m: Tensor, truth_m: Tensor, mask: Tensor, axis: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Log ratios of neighbours along an axis, of both depths, and where both pixels count."""
    length = mask.shape[axis] - 1
    both = mask.narrow(axis, 0, length) & mask.narrow(axis, 1, length)
    depth, truth = (one.clamp(min=NEAREST_M).log().diff(dim=axis) for one in (depth_m, truth_m))
    return depth, truth, both


def object_distances(depth_m: Tensor, truth_m: Tensor, objects: Tensor, mask: Tensor) -> Tensor:
    """The distance of each moving object, as depth and truth have it: float64 [n, 2], metres.

    An object is an id of a picture with at least `OBJECT_PIXELS` pixels that count; its distance
    is the median depth of its pixels, the figure that a robot keeps clear of.
    """
    rows = []
    for depth, truth, ids, valid in zip(depth_m, truth_m, objects, mask, strict=True):
        for number in ids[valid].unique().tolist():
            mine = valid & (ids == number)
            if number and mine.sum() >= OBJECT_PIXELS:
                rows.append(torch.stack([depth[mine].median(), truth[mine].median()]).double())
    return torch.stack(rows) if rows else depth_m.new_zeros((0, 2)).double()


def counted(truth_m: Tensor, zoe_m: Tensor) -> Tensor:
    """Pixels that count: truth inside the protocol's range, and a pseudo depth to compare with."""
    return (truth_m > NEAREST_M) & (truth_m < FARTHEST_M) & (zoe_m > 0)
