"""Losses on metric depth: masked, weighted towards moving objects, summed from a list of terms.

A term is a function of (refined_m, truth_m, weight), all float32 [B, 1, H, W], with weight 0
where there is no measurement, and returns a scalar. Those of `WITH_RGB` take rgb01 [B, 3, H, W],
too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from zoerefine.errors import UserError
from zoerefine.ranks import largest_over_ranks, sum_over_ranks

Term = Callable[..., Tensor]

NEAREST_M = 1e-3  # depth is clamped here before a logarithm
GRADIENT_SCALES = 4


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """Mean of `values` under `weight`, over the pixels of all ranks.

    0 where nothing weighs anything (no measurement at all).
    """
    total = sum_over_ranks(weight.sum())
    return sum_over_ranks((values * weight).sum()) / torch.where(total > 0, total, 1.0)


def log_error(refined_m: Tensor, truth_m: Tensor) -> Tensor:
    """log refined - log truth; meaningless (but finite) where there is no measurement."""
    return refined_m.clamp(min=NEAREST_M).log() - truth_m.clamp(min=NEAREST_M).log()


def mse(refined_m: Tensor, truth_m: Tensor, weight: Tensor) -> Tensor:
    """Squared error in square metres."""
    return weighted_mean((refined_m - truth_m).square(), weight)


def l1(refined_m: Tensor, truth_m: Tensor, weight: Tensor) -> Tensor:
    """Absolute error in metres."""
    return weighted_mean((refined_m - truth_m).abs(), weight)


def l1_log(refined_m: Tensor, truth_m: Tensor, weight: Tensor) -> Tensor:
    """Absolute error of log depth: the relative error, for small ones."""
    return weighted_mean(log_error(refined_m, truth_m).abs(), weight)


def silog(refined_m: Tensor, truth_m: Tensor, weight: Tensor) -> Tensor:
    """10 sqrt(var(g) + 0.15 mean(g)^2), g the log error: ZoeDepth's training loss."""
    g = log_error(refined_m, truth_m)
    mean = weighted_mean(g, weight)
    variance = weighted_mean((g - mean).square(), weight)
    # The square root's slope is infinite at 0.
    return 10 * (variance + 0.15 * mean.square() + 1e-8).sqrt()


def berhu(refined_m: Tensor, truth_m: Tensor, weight: Tensor) -> Tensor:
    """Reverse Huber: |e| below c, (e^2 + c^2) / 2c above, c = max|e| / 5 (Laina et al. 2016)."""
    error = (refined_m - truth_m).abs() * (weight > 0)
    largest = torch.cat([error.detach().flatten(), error.new_zeros(1)]).amax()
    c = (largest_over_ranks(largest) / 5).clamp(min=NEAREST_M)
    return weighted_mean(torch.where(error <= c, error, (error.square() + c * c) / (2 * c)), weight)


def gradient(refined_m: Tensor, truth_m: Tensor, weight: Tensor) -> Tensor:
    """Gradient of the log error at four scales (MegaDepth, Li and Snavely 2018, eq. 4)."""
    g = log_error(refined_m, truth_m)
    total = g.new_zeros(())
    for scale in range(GRADIENT_SCALES):
        step = 2**scale
        coarse, w = g[..., ::step, ::step], weight[..., ::step, ::step]
        for axis in (-1, -2):
            low, high = slice_pair(w, axis)
            both = torch.minimum(low, high)  # a difference counts only where both ends do
            total = total + weighted_mean(coarse.diff(dim=axis).abs(), both)
    return total


def normals(refined_m: Tensor, truth_m: Tensor, weight: Tensor) -> Tensor:
    """1 - cosine between the normals (-dz/dx, -dz/dy, 1) of both depths (Hu et al. 2019, eq. 6).

    Slopes are of log depth, in hundredths a pixel, so that near and far surfaces count alike.
    """
    refined, truth = slopes(refined_m), slopes(truth_m)  # [B, 2, H - 1, W - 1]
    product = (refined * truth).sum(1, keepdim=True) + 1
    lengths = [(one.square().sum(1, keepdim=True) + 1).sqrt() for one in (refined, truth)]
    corner, right, below = weight[..., :-1, :-1], weight[..., :-1, 1:], weight[..., 1:, :-1]
    whole = torch.minimum(corner, torch.minimum(right, below))
    return weighted_mean(1 - product / (lengths[0] * lengths[1]), whole)


def slopes(depth_m: Tensor) -> Tensor:
    """Steps of log depth to the right and below, times 100, [B, 2, H - 1, W - 1]."""
    log = depth_m.clamp(min=NEAREST_M).log()
    return 100 * torch.cat([log.diff(dim=-1)[..., :-1, :], log.diff(dim=-2)[..., :-1]], 1)


def smoothness(refined_m: Tensor, truth_m: Tensor, weight: Tensor, rgb01: Tensor) -> Tensor:
    """Steps of log depth, less where the picture has steps, too (Godard et al. 2017, eq. 3)."""
    log = refined_m.clamp(min=NEAREST_M).log()
    total = log.new_zeros(())
    for axis in (-1, -2):
        low, high = slice_pair(weight, axis)
        edge = rgb01.diff(dim=axis).abs().mean(1, keepdim=True)
        step = log.diff(dim=axis).abs() * torch.exp(-10 * edge)
        total = total + weighted_mean(step, torch.minimum(low, high))
    return total


def slice_pair(values: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Neighbours along an axis: all but the last, and all but the first."""
    length = values.shape[axis] - 1
    return values.narrow(axis, 0, length), values.narrow(axis, 1, length)


TERMS: dict[str, Term] = {
    "mse": mse,
    "l1": l1,
    "l1_log": l1_log,
    "silog": silog,
    "berhu": berhu,
    "gradient": gradient,
    "normals": normals,
    "smoothness": smoothness,
}
WITH_RGB = frozenset({"smoothness"})


class Loss:
    """A weighted sum of terms.

    Args:
        terms: a list of `{name, weight}`; names are keys of `TERMS`.
        object_weight: lambda of the first implementation: weight of moving-object pixels, while
            all others weigh 1 - lambda. In 0..1.
    """

    def __init__(self, terms: Sequence[Mapping[str, Any]], object_weight: float) -> None:
        self.terms = [_checked_term(term) for term in terms]
        if not self.terms:
            raise UserError("LOSS.TERMS is empty: give a list of {name, weight}")
        if not 0 <= object_weight <= 1:
            raise UserError(f"LOSS.OBJECT_WEIGHT must lie in 0..1, got {object_weight}")
        self.object_weight = object_weight

    def __call__(
        self, refined_m: Tensor, zoe_m: Tensor, truth_m: Tensor, objects: Tensor, rgb01: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch and its terms by name (detached, before weighting).

        All [B, 1, H, W], but rgb01 [B, 3, H, W]; depths float32 metres with 0 as no measurement,
        objects uint8 ids.
        """
        valid = (truth_m > 0) & (zoe_m > 0)  # NaN is not above 0
        # A weight of 0 does not silence NaN and infinity: nothing but numbers goes on from here.
        refined_m, truth_m = (torch.where(valid, depth, 1.0) for depth in (refined_m, truth_m))
        moving = torch.where(objects > 0, self.object_weight, 1 - self.object_weight)
        weight = valid * moving.to(refined_m.dtype)
        total = refined_m.new_zeros(())
        parts = {}
        for name, factor in self.terms:
            pictures = (rgb01,) if name in WITH_RGB else ()
            value = TERMS[name](refined_m, truth_m, weight, *pictures)
            parts[name] = value.detach()
            total = total + factor * value
        return total, parts


def _checked_term(term: Mapping[str, Any]) -> tuple[str, float]:
    if set(term) != {"name", "weight"}:
        raise UserError(f"LOSS.TERMS: a term is {{name, weight}}, got {dict(term)}")
    if term["name"] not in TERMS:
        raise UserError(f"LOSS.TERMS: no term {term['name']!r}; known: {', '.join(TERMS)}")
    return term["name"], float(term["weight"])
