"""The squared error of log depth."""

from torch import Tensor

from zoerefine.depth.loss import LossInputs, log_error, weighted_mean


def log_mse(x: LossInputs) -> Tensor:
    """Squared error of log depth (Eigen et al. 2014, without its scale term)."""
    return weighted_mean(log_error(x).square(), x.weight)
