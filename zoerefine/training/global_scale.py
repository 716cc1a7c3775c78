"""The best single factor for the pseudo depth: the baseline that a refiner must beat."""

from collections.abc import Iterable

import numpy as np

from zoerefine.data.prefetch import DeviceBatch
from zoerefine.depth_limits import FARTHEST_M
from zoerefine.metrics import valid_pixels

BINS = 10_000  # of the histogram, for each unit of the log factor
MAX_LOG_FACTOR = 5.0


def fit_log_scale(batches: Iterable[DeviceBatch], farthest_m: float = FARTHEST_M) -> float:
    """The logarithm of the factor s with the least mean AbsRel over pictures.

    A picture of n valid pixels with pseudo depth z and truth t has, at factor s,

        AbsRel = 1/n sum |s z - t| / t = sum w |s - t/z|,  w = z / (n t)

    so the mean over pictures is least at the weighted median of t/z over the pixels of all
    pictures, with weights w. The median comes from a histogram of log(t/z) with bins of width
    1/BINS, filled in one pass over the pictures.

    Returns:
        log s in [-MAX_LOG_FACTOR, MAX_LOG_FACTOR]; 0 without a valid pixel.
    """
    center = round(MAX_LOG_FACTOR * BINS)
    histogram = np.zeros(2 * center + 1)
    for batch in batches:
        mask = valid_pixels(batch.depth_m, batch.zoe_m, farthest_m)
        for truth_m, zoe_m, valid in zip(batch.depth_m, batch.zoe_m, mask, strict=True):
            ratio = (truth_m[valid] / zoe_m[valid]).double().cpu().numpy()
            bins = np.rint(np.log(ratio) * BINS).astype(np.int64) + center
            weights = 1 / (ratio * max(1, len(ratio)))
            histogram += np.bincount(bins.clip(0, 2 * center), weights, len(histogram))
    if not histogram.any():
        return 0.0
    cumulative = histogram.cumsum()
    median = int(np.searchsorted(cumulative, cumulative[-1] / 2))
    return (median - center) / BINS
