"""Losses on metric depth: masked, weighted towards moving objects, summed from a list of terms.

A term is a function of `LossInputs` that returns a scalar. To add one, write the function and one
row of `registries.LOSS_TERMS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zoerefine.base.ranks import max_over_ranks, sum_over_ranks
from zoerefine.base.registries import LOSS_TERMS

NEAREST_M = 1e-3  # depth is clamped here before a logarithm
GRADIENT_SCALES = 4
CONFIDENCE = "confidence"  # the term that trains the confidence; it is not part of the loss


@dataclass(frozen=True)
class LossInputs:
    """What a term may use of a batch.

    Attributes:
        refined_m, truth_m: float32 [B, 1, H, W], metres; finite, but meaningless at weight 0.
        weight: float32 [B, 1, H, W]; 0 where there is no measurement.
        rgb01: float32 [B, 3, H, W] in 0..1.
    """

    refined_m: Tensor
    truth_m: Tensor
    weight: Tensor
    rgb01: Tensor


Term = Callable[[LossInputs], Tensor]


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Mean of `values` under `weight`, over the pixels of all ranks; 0 if all weights are 0."""
    total = sum_over_ranks(weight.sum())
    return sum_over_ranks((values * weight).sum()) / torch.where(total > 0, total, 1.0)


def log_error(x: LossInputs) -> Tensor:
    """log refined - log truth; finite, but meaningless, where there is no measurement."""
    return x.refined_m.clamp(min=NEAREST_M).log() - x.truth_m.clamp(min=NEAREST_M).log()


def mse(x: LossInputs) -> Tensor:
    """Squared error in square metres."""
    return weighted_mean((x.refined_m - x.truth_m).square(), x.weight)


def l1(x: LossInputs) -> Tensor:
    """Absolute error in metres."""
    return weighted_mean((x.refined_m - x.truth_m).abs(), x.weight)


def l1_log(x: LossInputs) -> Tensor:
    """Absolute error of log depth: the relative error, for small ones."""
    return weighted_mean(log_error(x).abs(), x.weight)


def silog(x: LossInputs) -> Tensor:
    """10 sqrt(var(g) + 0.15 mean(g)^2), g the log error: ZoeDepth's training loss."""
    g = log_error(x)
    mean = weighted_mean(g, x.weight)
    variance = weighted_mean((g - mean).square(), x.weight)
    # The square root's slope is infinite at 0.
    return 10 * (variance + 0.15 * mean.square() + 1e-8).sqrt()


def berhu(x: LossInputs) -> Tensor:
    """Reverse Huber: |e| below c, (e^2 + c^2) / 2c above, c = max|e| / 5 (Laina et al. 2016)."""
    error = (x.refined_m - x.truth_m).abs() * (x.weight > 0)
    largest = torch.cat([error.detach().flatten(), error.new_zeros(1)]).amax()
    c = (max_over_ranks(largest) / 5).clamp(min=NEAREST_M)
    values = torch.where(error <= c, error, (error.square() + c * c) / (2 * c))
    return weighted_mean(values, x.weight)


def gradient(x: LossInputs) -> Tensor:
    """Gradient of the log error at four scales (MegaDepth, Li and Snavely 2018, eq. 4)."""
    g = log_error(x)
    total = g.new_zeros(())
    for scale in range(GRADIENT_SCALES):
        step = 2**scale
        coarse, w = g[..., ::step, ::step], x.weight[..., ::step, ::step]
        for axis in (-1, -2):
            low, high = slice_pair(w, axis)
            both = torch.minimum(low, high)  # a difference needs both ends
            total = total + weighted_mean(coarse.diff(dim=axis).abs(), both)
    return total


def normals(x: LossInputs) -> Tensor:
    """1 - cosine between the normals (-dz/dx, -dz/dy, 1) of both depths (Hu et al. 2019, eq. 6).

    z is log depth in hundredths, so that near and far surfaces weigh the same.
    """
    refined, truth = slopes(x.refined_m), slopes(x.truth_m)  # [B, 2, H - 1, W - 1]
    product = (refined * truth).sum(1, keepdim=True) + 1
    lengths = [(one.square().sum(1, keepdim=True) + 1).sqrt() for one in (refined, truth)]
    corner, right, below = (x.weight[..., :-1, :-1], x.weight[..., :-1, 1:], x.weight[..., 1:, :-1])
    whole = torch.minimum(corner, torch.minimum(right, below))
    return weighted_mean(1 - product / (lengths[0] * lengths[1]), whole)


def slopes(depth_m: Tensor) -> Tensor:
    """Differences of log depth to the right and below, times 100, [B, 2, H - 1, W - 1]."""
    log = depth_m.clamp(min=NEAREST_M).log()
    return 100 * torch.cat([log.diff(dim=-1)[..., :-1, :], log.diff(dim=-2)[..., :-1]], 1)


def smoothness(x: LossInputs) -> Tensor:
    """Absolute gradient of log depth, reduced at picture edges (Godard et al. 2017, eq. 3)."""
    log = x.refined_m.clamp(min=NEAREST_M).log()
    total = log.new_zeros(())
    for axis in (-1, -2):
        low, high = slice_pair(x.weight, axis)
        edge = x.rgb01.diff(dim=axis).abs().mean(1, keepdim=True)
        step = log.diff(dim=axis).abs() * torch.exp(-10 * edge)
        total = total + weighted_mean(step, torch.minimum(low, high))
    return total


def slice_pair(values: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Neighbours along an axis: all but the last, and all but the first."""
    length = values.shape[axis] - 1
    return values.narrow(axis, 0, length), values.narrow(axis, 1, length)


def confidence(x: LossInputs, log_scale: Tensor) -> Tensor:
    """Negative log-likelihood of the log error under Laplace distributions, less log 2.

    `log_scale`, [B, 1, H, W], is the log of their scales. The error is detached: this trains the
    confidence alone.
    """
    error = log_error(x).detach().abs()
    return weighted_mean(error * torch.exp(-log_scale) + log_scale, x.weight)


class Loss:
    """A weighted sum of terms.

    Args:
        terms: a list of `{name, weight}`; names are keys of `registries.LOSS_TERMS`.
        object_weight: lambda of the first implementation: weight of moving-object pixels; all
            others have the weight 1 - lambda. In 0..1.
    """

    def __init__(self, terms: Sequence[Mapping[str, Any]], object_weight: float) -> None:
        self.terms = [(term["name"], term["weight"]) for term in terms]
        self.functions: dict[str, Term] = {name: LOSS_TERMS.load(name) for name, _ in self.terms}
        self.object_weight = object_weight

    def __call__(
        self,
        refined_m: Tensor,
        zoe_m: Tensor,
        truth_m: Tensor,
        objects: Tensor,
        rgb01: Tensor,
        log_scale: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and each term by name (without its factor).

        Args:
            refined_m, zoe_m, truth_m: float32 [B, 1, H, W], metres; 0 means no measurement.
            objects: uint8 [B, 1, H, W], ids of moving objects; 0 is background.
            rgb01: float32 [B, 3, H, W] in 0..1.
            log_scale: float32 [B, 1, H, W]; adds `confidence` to the terms, but not to the loss.

        Returns:
            The loss, and its terms; of these only `confidence` has a gradient.
        """
        valid = (truth_m > 0) & (zoe_m > 0)  # False for NaN
        # Weight 0 times NaN is NaN, so invalid pixels get finite depths here.
        refined_m, truth_m = (torch.where(valid, depth, 1.0) for depth in (refined_m, truth_m))
        moving = torch.where(objects > 0, self.object_weight, 1 - self.object_weight)
        weight = valid * moving.to(refined_m.dtype)
        inputs = LossInputs(refined_m, truth_m, weight, rgb01)
        total = refined_m.new_zeros(())
        parts = {}
        for name, factor in self.terms:
            value = self.functions[name](inputs)
            parts[name] = value.detach()
            total = total + factor * value
        if log_scale is not None:
            parts[CONFIDENCE] = confidence(inputs, log_scale)
        return total, parts

    def of_each_picture(self, *inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of each picture of a batch alone, and its terms: [B] each.

        Args:
            inputs: as for a call, without `log_scale`.
        """
        try:
            found: tuple[Tensor, dict[str, Tensor]] = torch.vmap(self)(
                *(one[:, None] for one in inputs)
            )
        except RuntimeError:
            # vmap refuses what a user's own term may do: shapes or branches that values decide.
            alone = [self(*picture) for picture in zip(*(x.split(1) for x in inputs), strict=True)]
            terms = {name: torch.stack([one[name] for _, one in alone]) for name in alone[0][1]}
            return torch.stack([total for total, _ in alone]), terms
        return found
