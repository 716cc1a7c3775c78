"""The mean error of depth."""

from torch import Tensor

from zoerefine.depth.metrics import Metric, PictureErrors


@Metric
def mean_error_m(e: PictureErrors) -> Tensor:
    """Mean of depth - truth, metres: positive where depth is too far."""
    return e.mean(e.depth - e.truth)
