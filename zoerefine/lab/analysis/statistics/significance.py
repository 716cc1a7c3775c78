"""Whether a difference is significant: intervals of means, permutation tests, Holm's correction.

One estimator serves the graph, the page and the tables: the mean over the runs of a group, where
every run counts once, with Student's t interval; a difference of means has Welch's. A robust mean
would hide a seed that diverged, and a percentile bootstrap of three runs covers the true mean in
about three of four cases instead of 95%.

The difference of two groups' means has a p value from an exact permutation test over seeds. Where
scenes are many and seeds few, a second family of tests compares two groups scene by scene. Lower
scores are better.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import comb, nan, sqrt

import numpy as np

Array = np.ndarray

INTERVAL = "95% Student's t interval"
CONFIDENCE = 0.95
ENOUGH_RUNS = 3  # with fewer, there is no interval and no conclusion
ANGLES = 20_001  # steps of the numerical integral in `t_quantile`


def estimate(scores: Array | Sequence[float]) -> float:
    """The estimator of a group's score, float [runs] -> float; NaN without runs."""
    return float(np.mean(scores)) if len(scores) else nan


def mean_interval(values: Array) -> tuple[float, float] | None:
    """Student's t interval of the mean of `values`, float [n]; None for n < ENOUGH_RUNS."""
    if len(values) < ENOUGH_RUNS:
        return None
    half = half_width(values)
    return estimate(values) - half, estimate(values) + half


def half_width(values: Array | Sequence[float]) -> float:
    """Half the width of Student's t interval of the mean, from at least two values."""
    return t_quantile(len(values) - 1) * sqrt(squared_error(values))


def difference_interval(ours: Array, theirs: Array) -> tuple[float, float] | None:
    """Welch's t interval of mean(ours) - mean(theirs), for groups of unequal variance.

    None where one side has fewer than ENOUGH_RUNS runs.
    """
    if min(len(ours), len(theirs)) < ENOUGH_RUNS:
        return None
    parts = squared_error(ours), squared_error(theirs)
    difference, total = estimate(ours) - estimate(theirs), sum(parts)
    if total == 0:
        return difference, difference
    shares = parts[0] / total, parts[1] / total  # squares of the parts may overflow
    freedom = 1 / (shares[0] ** 2 / (len(ours) - 1) + shares[1] ** 2 / (len(theirs) - 1))
    half = t_quantile(freedom) * sqrt(total)
    return difference - half, difference + half


def squared_error(values: Array | Sequence[float]) -> float:
    """The squared standard error of a mean."""
    return float(np.var(values, ddof=1)) / len(values)


@cache
def t_quantile(freedom: float) -> float:
    """The t with P(|T| <= t) = CONFIDENCE under Student's distribution, freedom >= 1.

    With T = sqrt(freedom) tan(angle) the density is proportional to cos(angle)^(freedom - 1), so
    that its integral over a finite range is summed here and inverted by interpolation.
    """
    angles = np.linspace(0, np.pi / 2, ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return sqrt(freedom) * float(np.tan(np.interp(CONFIDENCE, below / below[-1], angles)))


ALPHA = 0.05  # the level of the tests
EXACT_PERMUTATIONS = 20_000  # with more, RANDOM_PERMUTATIONS of them are drawn
RANDOM_PERMUTATIONS = 10_000
ENOUGH_SCENES = 6  # with fewer, the smallest p by scene is above ALPHA
ROUNDING = 1e-12  # of the largest value: what sums in another order may differ by


def probability_of_improvement(ours: Array, theirs: Array) -> float:
    """The share of pairs (a run of ours, a run of theirs) in which ours is lower; ties count half.

    This is the Mann-Whitney U statistic divided by the number of pairs.
    """
    lower = (ours[:, None] < theirs[None]).mean()
    equal = (ours[:, None] == theirs[None]).mean()
    return float(lower + equal / 2)


def permutation_p(ours: Array, theirs: Array) -> float:
    """Two-sided p value of the difference of means, under exchange of the group labels.

    Exact up to EXACT_PERMUTATIONS assignments, else from random ones.
    """
    both = np.concatenate([ours, theirs])
    n, total = len(ours), len(both)
    exact = comb(total, n) <= EXACT_PERMUTATIONS
    assigned = _assignments(total, n, exact)
    sums = both[assigned].sum(1)
    differences = np.abs(sums / n - (both.sum() - sums) / (total - n))
    observed = abs(estimate(ours) - estimate(theirs))
    as_large = int((differences >= observed - ROUNDING * np.abs(both).max()).sum())
    return as_large / len(assigned) if exact else (1 + as_large) / (1 + len(assigned))


@cache
def _assignments(total: int, n: int, exact: bool) -> Array:
    """Every choice of n of total, or RANDOM_PERMUTATIONS random ones: int [choices, n]."""
    if exact:
        return np.array(list(combinations(range(total), n)))
    rng = np.random.default_rng(0)
    return rng.permuted(np.tile(np.arange(total), (RANDOM_PERMUTATIONS, 1)), axis=1)[:, :n]


def sign_flip_p(differences: Array) -> float:
    """Two-sided p value of a mean difference, float [n], under exchange of the two sides.

    Exact up to EXACT_PERMUTATIONS choices of signs, else from random ones.
    """
    n = len(differences)
    exact = 2**n <= EXACT_PERMUTATIONS
    signs = _signs(n, exact)
    means = np.abs(signs @ differences)
    rounding = ROUNDING * np.abs(differences).sum()
    as_large = int((means >= abs(differences.sum()) - rounding).sum())
    return as_large / len(signs) if exact else (1 + as_large) / (1 + len(signs))


@cache
def _signs(n: int, exact: bool) -> Array:
    """Every choice of n signs, or RANDOM_PERMUTATIONS random ones: int8 [choices, n]."""
    if exact:
        return (1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)).astype(np.int8)
    return np.random.default_rng(0).choice(np.array([-1, 1], np.int8), (RANDOM_PERMUTATIONS, n))


def smallest_p(n: int, m: int) -> float:
    """The lowest p value that `permutation_p` can give for n and m runs."""
    choices = comb(n + m, n)
    if choices > EXACT_PERMUTATIONS:
        return 1 / (1 + RANDOM_PERMUTATIONS)
    return (2 if n == m else 1) / choices  # equal sizes: the mirrored assignment is as extreme


def seeds_needed(comparisons: int) -> int:
    """The seeds per group with which the strongest of the comparisons can reach ALPHA at all."""
    return next(n for n in range(ENOUGH_RUNS, 100) if smallest_p(n, n) * comparisons <= ALPHA)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust n p values for n tests (Holm 1979): the smallest times n, the next times n - 1, ..."""
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
