"""P values of permutation tests, and Holm's correction for several of them.

The difference of two groups' means has a p value from an exact permutation test over seeds. Where
scenes are many and seeds few, a second family of tests compares two groups scene by scene. Lower
scores are better.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import comb

import numpy as np

from zoerefine.lab.analysis.statistics.intervals import ENOUGH_RUNS, estimate

Array = np.ndarray

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
    assigned = _every_assignment(total, n) if exact else _random_assignments(total, n)
    sums = both[assigned].sum(1)
    differences = np.abs(sums / n - (both.sum() - sums) / (total - n))
    observed = abs(estimate(ours) - estimate(theirs))
    as_large = int((differences >= observed - ROUNDING * np.abs(both).max()).sum())
    return as_large / len(assigned) if exact else (1 + as_large) / (1 + len(assigned))


@cache
def _every_assignment(total: int, n: int) -> Array:
    """Every choice of n of total: int [choices, n]."""
    return np.array(list(combinations(range(total), n)))


@cache
def _random_assignments(total: int, n: int) -> Array:
    """Random choices of n of total: int [RANDOM_PERMUTATIONS, n]."""
    rng = np.random.default_rng(0)
    return rng.permuted(np.tile(np.arange(total), (RANDOM_PERMUTATIONS, 1)), axis=1)[:, :n]


def sign_flip_p(differences: Array) -> float:
    """Two-sided p value of a mean difference, float [n], under exchange of the two sides.

    Exact up to EXACT_PERMUTATIONS choices of signs, else from random ones.
    """
    n = len(differences)
    exact = 2**n <= EXACT_PERMUTATIONS
    signs = _every_sign(n) if exact else _random_signs(n)
    means = np.abs(signs @ differences)
    rounding = ROUNDING * np.abs(differences).sum()
    as_large = int((means >= abs(differences.sum()) - rounding).sum())
    return as_large / len(signs) if exact else (1 + as_large) / (1 + len(signs))


@cache
def _every_sign(n: int) -> Array:
    """Every choice of n signs: int8 [2^n, n]."""
    return (1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)).astype(np.int8)


@cache
def _random_signs(n: int) -> Array:
    """Random choices of n signs: int8 [RANDOM_PERMUTATIONS, n]."""
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
