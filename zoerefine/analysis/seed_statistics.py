"""Statistics for few runs: interquartile means, stratified bootstrap, permutation tests.

The methods are those of Agarwal et al. 2021, "Deep reinforcement learning at the edge of the
statistical precipice": aggregate robustly, resample runs within each scene, and report
intervals and probabilities of improvement, not single numbers. Lower scores are better.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from math import comb

import numpy as np

Array = np.ndarray

ENOUGH_RUNS = 3  # below this no interval is drawn
RESAMPLES = 2000
CONFIDENCE = 0.95
EXACT_PERMUTATIONS = 20_000


def interquartile_mean(values: Array) -> float:
    """Mean of the middle half: of n sorted values, n/4 at each end count nothing.

    Where n/4 is no whole number, the value at the cut counts in part.
    """
    ordered = np.sort(np.asarray(values, np.float64).ravel())
    n = len(ordered)
    edges = np.arange(n + 1)
    weights = np.clip(np.minimum(edges[1:], 0.75 * n) - np.maximum(edges[:-1], 0.25 * n), 0, None)
    return float((ordered * weights).sum() / weights.sum())


def bootstrap_interval(
    scores: Array, statistic: Callable[[Array], float] = np.mean, seed: int = 0
) -> tuple[float, float] | None:
    """A percentile interval of `statistic` over runs.

    Args:
        scores: [runs, scenes]. Runs are drawn anew within each scene (stratified), so that hard
            and easy scenes keep their weight.

    Returns:
        The bounds, or None where there are too few runs to say.
    """
    if len(scores) < ENOUGH_RUNS:
        return None
    return percentiles(np.array([statistic(sample) for sample in resample(scores, seed)]))


def resample(scores: Array, seed: int) -> Array:
    """[RESAMPLES, runs, scenes]: runs drawn anew, with replacement, within each scene."""
    runs, scenes = scores.shape
    drawn = np.random.default_rng(seed).integers(0, runs, (RESAMPLES, runs, scenes))
    return np.take_along_axis(scores[None], drawn, axis=1)


def percentiles(values: Array) -> tuple[float, float]:
    """The bounds of the middle share CONFIDENCE of resampled values."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def probability_of_improvement(ours: Array, theirs: Array) -> float:
    """How likely a run of ours beats a run of theirs on a scene, averaged over scenes.

    Args:
        ours, theirs: [runs, scenes] of the same scenes; ties count half.
    """
    better = (ours[:, None] < theirs[None]).mean((0, 1))
    equal = (ours[:, None] == theirs[None]).mean((0, 1))
    return float((better + equal / 2).mean())


def cliffs_delta(ours: Array, theirs: Array) -> float:
    """Effect size in -1..1 (Cliff 1993): P(ours < theirs) - P(ours > theirs)."""
    return float(np.sign(theirs[None, :] - ours[:, None]).mean())


def permutation_p(ours: Array, theirs: Array, seed: int = 0) -> float:
    """Two-sided p of the difference of means when labels are dealt out anew.

    Exact where the ways to deal are few enough to count, else of random ones.
    """
    both = np.concatenate([ours, theirs])
    n, total = len(ours), len(both)
    exact = comb(total, n) <= EXACT_PERMUTATIONS
    dealt = _every_deal(total, n) if exact else _random_deals(total, n, seed)
    mine = both[dealt].sum(1)
    differences = np.abs(mine / n - (both.sum() - mine) / (total - n))
    as_far = int((differences >= abs(ours.mean() - theirs.mean()) - 1e-12).sum())
    return as_far / len(dealt) if exact else (1 + as_far) / (1 + len(dealt))


@cache
def _every_deal(total: int, n: int) -> Array:
    """Every way to choose n of total: [ways, n]."""
    return np.array(list(combinations(range(total), n)))


def _random_deals(total: int, n: int, seed: int) -> Array:
    """Some ways to choose n of total: [RESAMPLES, n]."""
    rng = np.random.default_rng(seed)
    return rng.permuted(np.tile(np.arange(total), (RESAMPLES, 1)), axis=1)[:, :n]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p for many comparisons (Holm 1979): the smallest times n, the next n - 1, ..."""
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (cost, score) that no other beats in both, by rising cost."""
    front: list[int] = []
    best = np.inf
    for index in sorted(range(len(points)), key=lambda i: points[i]):
        if points[index][1] < best:
            best = points[index][1]
            front.append(index)
    return front
