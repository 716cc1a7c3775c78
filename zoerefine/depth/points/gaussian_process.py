"""The Gaussian process of predicted depth at a few metric points.

The logarithm of true depth / predicted depth is a Gaussian process over the picture and the
predicted depth: the value at a pixel is like those of points that are near in the picture and at a
similar depth. With points i at x, y (in units of the longer side) and log depth z,

    k(i, j) = SCALE^2 + LOCAL^2 exp(-|x_i - x_j| / L) exp(-|y_i - y_j| / L) exp(-|z_i - z_j| / L)

The first term is an error of scale of the whole picture, the second one of a surface or object.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from zoerefine.base.machine import device  # noqa: F401  (called from several threads)

# Chosen by the mean error in the rooms of benchmarks/points.py at 5 to 300 points.
SCALE = 0.6  # standard deviation of the log error of a whole picture
LOCAL = 0.25  # of the part that differs within a picture
LENGTH = 0.5  # of the kernel: of the longer side, and of log depth
NOISE = 0.05  # standard deviation of a point's log depth, beside its own sigma
IGNORED = 1e4  # the noise of a point that does not count
NEAREST_M = 1e-2  # predicted depth below this counts as this


@dataclass(frozen=True)
class Process:
    """The Gaussian process of predicted depth at its points.

    Attributes:
        points: float64 [B, N, 4].
        rows, columns: of the points in units of the longer side, [B, N].
        log_m: log predicted depth of the points, [B, N].
        error: log of measured / predicted depth, [B, N].
        covariance: of the errors, without noise, [B, N, N].
        noise: variance of a point's log depth, [B, N].
        there: which points are used, bool [B, N].
    """

    points: Tensor
    rows: Tensor
    columns: Tensor
    log_m: Tensor
    error: Tensor
    covariance: Tensor
    noise: Tensor
    there: Tensor

    @classmethod
    def of(cls, depth_m: Tensor, points: Tensor) -> "Process":
        """Depth and points as `spread` takes them."""
        points = points.double()
        x, y, metres, sigma_m = points.unbind(-1)
        predicted_m = at_points(depth_m, x, y)
        there = (metres > 0) & (predicted_m > 0) & predicted_m.isfinite()
        log_m = predicted_m.clamp(min=NEAREST_M).log()
        error = torch.where(there, metres.clamp(min=1e-9).log() - log_m, 0.0)
        noise = NOISE**2 + (sigma_m / metres.clamp(min=1e-9)) ** 2
        noise = torch.where(there, noise, 1.0)
        rows, columns = places(points, depth_m)
        apart = torch.zeros_like(there, dtype=log_m.dtype)[..., None]
        for one in (rows, columns, log_m):
            apart = apart + (one[..., None] - one[:, None]).abs()
        covariance = (SCALE**2 + LOCAL**2 * (apart / -LENGTH).exp()) * pairs(there)
        return cls(points, rows, columns, log_m, error, covariance, noise, there)

    def precision(self, agree: Tensor) -> Tensor:
        """The inverse of the covariance with noise, [B, N, N]; only these points count."""
        ignored = torch.where(agree, self.noise, IGNORED)
        # The checks of `cholesky` and `inv` would wait for a GPU; noise keeps matrices regular.
        factor = torch.linalg.cholesky_ex(self.covariance + torch.diag_embed(ignored)).L
        return torch.cholesky_inverse(factor)

    def deviation(self, agree: Tensor) -> Tensor:
        """How far each point is from what those that agree predict for it, [B, N].

        In standard deviations of that difference, with the point's own noise (leave-one-out).
        """
        if self.is_one_on_cpu:
            return self.conditioned(agree)[1]
        precision = self.precision(agree)
        variance = 1 / precision.diagonal(dim1=1, dim2=2)
        ignored = torch.where(agree, self.noise, IGNORED)
        expected = (variance - ignored).clamp(min=0) + self.noise
        left = (precision @ self.error[..., None])[..., 0] * variance
        return left.abs() / expected.sqrt()

    def weights(self, agree: Tensor) -> Tensor:
        """The weights of points in the mean of the process, [B, N]; 0 for those that disagree."""
        if self.is_one_on_cpu:
            return self.conditioned(agree)[0]
        system = self.covariance * pairs(agree)
        system += torch.diag_embed(torch.where(agree, self.noise, 1.0))
        factor = torch.linalg.cholesky_ex(system).L
        error = torch.where(agree, self.error, 0.0)
        return torch.cholesky_solve(error[..., None], factor)[..., 0]

    @property
    def is_one_on_cpu(self) -> bool:
        """Whether `conditioned` can be used."""
        return len(self.there) == 1 and not self.there.is_cuda

    @cached_property
    def whole(self) -> tuple[Tensor, Tensor]:
        """The precision of all points of one picture, [N, N], and its product with errors, [N]."""
        precision = self.precision(self.there)[0]
        return precision, precision @ self.error[0]

    def conditioned(self, agree: Tensor) -> tuple[Tensor, Tensor]:
        """`weights` and `deviation` for one picture, by one inverse of the covariance for any
        `agree`: points of a normal distribution are left out by blocks of its precision (Rasmussen
        and Williams, section 5.4.2 and eq. A.6 to A.12). A GPU would have to say how many they are.
        """
        precision, told = self.whole
        others = (self.there & ~agree)[0].nonzero()[:, 0]
        columns = precision[:, others]
        covariance = torch.linalg.inv(columns[others])  # of these points given all others
        gain = columns @ covariance
        left = covariance @ told[others]
        weights = told - columns @ left
        variance = 1 / (precision.diagonal() - (columns * gain).sum(1))
        deviation = weights.abs() * variance.sqrt()
        deviation[others] = left.abs() / covariance.diagonal().sqrt()
        weights[others] = 0.0
        return weights[None], deviation[None]


def places(points: Tensor, depth_m: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of points in units of the picture's longer side, [B, N] each."""
    longer = max(depth_m.shape[2:])
    return points[..., 1] / longer, points[..., 0] / longer


def at_points(depth_m: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Depth [B, 1, H, W] at the pixels of points, float64 [B, N]."""
    height, width = depth_m.shape[2:]
    row, column = y.round().long().clamp(0, height - 1), x.round().long().clamp(0, width - 1)
    return depth_m.flatten(1).gather(1, row * width + column).double()


def kernel(a: Tensor, b: Tensor, length: float = LENGTH) -> Tensor:
    """exp(-|a_i - b_j| / length) of [B, n] or [n], and [B, m]: [B, n, m]."""
    return torch.exp(-(a[..., :, None] - b[:, None, :]).abs() / length)


def pairs(chosen: Tensor) -> Tensor:
    """Where both points of a pair are chosen: bool [B, N] to [B, N, N]."""
    return chosen[:, :, None] & chosen[:, None, :]
