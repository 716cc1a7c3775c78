"""Which metric points are outliers of the others.

A point is one if it differs by more than OUTLIER standard deviations from what the others predict
for it (leave-one-out; Rasmussen and Williams, Gaussian Processes for Machine Learning, eq. 5.12).
"""

import torch
from torch import Tensor

from zoerefine.depth.points.gaussian_process import Process

OUTLIER = 2.5  # chosen as the constants of gaussian_process.py
OUTLIER_ROUNDS = 3


def agreeing(process: Process) -> Tensor:
    """The points that agree with the others, bool [B, N].

    Each round predicts every point from the others that agreed in the round before, so a point
    that was taken for an outlier because of one may return. At least half of all stay.
    """
    agree = process.there
    for _ in range(OUTLIER_ROUNDS):
        deviation = process.deviation(agree)
        median = nan_median(torch.where(process.there, deviation, torch.nan))
        agree = process.there & (deviation <= median.nan_to_num(0.0).clamp(min=OUTLIER))
    return agree


def nan_median(values: Tensor) -> Tensor:
    """The median [B, 1] of each row [B, N] without its NaN: `Tensor.nanmedian`, bit by bit.

    On a GPU torch has no deterministic one.
    """
    ordered = values.sort(1).values  # NaN come last
    middle = ((~ordered.isnan()).sum(1, keepdim=True) - 1) // 2
    return ordered.gather(1, middle.clamp(min=0))
