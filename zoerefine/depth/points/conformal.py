"""How wide a band of 90% is: the quantile of scores of what was measured, and of other rooms.

A score is an error in the standard deviations that were expected of it (split conformal prediction,
Lei et al. 2018, with scaled residuals). What was measured gives few scores, so those of other rooms
count, too, as a fixed number of measurements.

Importing this file does not import torch.
"""

import numpy as np

COVERAGE = 0.9

Array = np.ndarray


def quantile(scores: Array, others: Array, weight: float) -> float:
    """The score that COVERAGE of all keep.

    Args:
        others: scores of other rooms, which count as `weight` scores in all.
    """
    values = np.concatenate([scores, others])
    weights = np.concatenate([np.ones(len(scores)), np.full(len(others), weight / len(others))])
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    last = min(int(np.searchsorted(share, COVERAGE)), len(values) - 1)
    return float(values[order[last]])
