"""Depth metrics as ZoeDepth's evaluation defines them, accumulated exactly over a data set.

The protocol (ZoeDepth `evaluate.py`): predictions are clamped to [NEAREST_M, FARTHEST_M], pixels
count where NEAREST_M < truth < FARTHEST_M, each metric is the mean of its value *per picture*,
and nothing is rescaled to the truth. Sums are kept in float64, so batch size does not matter.
"""

import torch
from torch import Tensor

NEAREST_M = 1e-3
FARTHEST_M = 10.0
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
        """Add pictures' metrics [B, len(NAMES)] from `picture_metrics`."""
        # One picture after another: the order of addition, and so the last bit, is the same
        # however the pictures were grouped into batches.
        for row in rows[~rows.isnan().any(1)].cpu():
            self.sums += row
            self.pictures += 1

    def compute(self) -> dict[str, float]:
        """Metrics by name; empty where no picture counted."""
        if not self.pictures:
            return {}
        return dict(zip(NAMES, (self.sums / self.pictures).tolist(), strict=True))


def counted(truth_m: Tensor, zoe_m: Tensor) -> Tensor:
    """Pixels that count: truth inside the protocol's range, and a pseudo depth to compare with."""
    return (truth_m > NEAREST_M) & (truth_m < FARTHEST_M) & (zoe_m > 0)
