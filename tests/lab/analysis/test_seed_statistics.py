"""Statistics against mpmath, brute force and cases computed by hand."""

from itertools import combinations, product
from statistics import NormalDist

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.lab.analysis.costs import pareto_front
from zoerefine.lab.analysis.statistics.significance import (
    difference_interval,
    estimate,
    half_width,
    holm,
    mean_interval,
    permutation_p,
    probability_of_improvement,
    seeds_needed,
    sign_flip_p,
    smallest_p,
    t_quantile,
)

SCORES = st.lists(st.integers(-50, 50).map(float), min_size=3, max_size=5).map(np.array)


def two_sided_tail(t, freedom):
    """P(|T| > t) by the incomplete beta function."""
    return float(mpmath.betainc(freedom / 2, 0.5, 0, freedom / (freedom + t * t), regularized=True))


@pytest.mark.parametrize("freedom", [1, 2, 2.7, 3, 4, 5.5, 9, 30, 200])
def test_t_quantile_agrees_with_the_incomplete_beta_function(freedom):
    assert two_sided_tail(t_quantile(freedom), freedom) == pytest.approx(0.05, abs=1e-7)


def test_intervals_agree_with_the_formulas_of_student_and_welch():
    ours, theirs = np.array([1.0, 2.0, 4.0, 4.5]), np.array([3.0, 7.0, 8.0])
    half = t_quantile(3) * np.std(ours, ddof=1) / 2
    assert mean_interval(ours) == pytest.approx((2.875 - half, 2.875 + half))
    assert half_width([1.0, 2.0]) == pytest.approx(12.7062 * 0.5, abs=1e-4)
    low, high = difference_interval(ours, theirs)
    assert (low + high) / 2 == pytest.approx(estimate(ours) - estimate(theirs))
    a, b = np.var(ours, ddof=1) / 4, np.var(theirs, ddof=1) / 3
    freedom = (a + b) ** 2 / (a**2 / 3 + b**2 / 2)
    t = (high - low) / 2 / np.sqrt(a + b)
    assert two_sided_tail(t, freedom) == pytest.approx(0.05, abs=1e-7)


def test_intervals_need_three_runs_and_allow_equal_ones():
    pair, equal = np.array([1.0, 2.0]), np.full(3, 4.0)
    assert mean_interval(pair) is None
    assert difference_interval(pair, equal) is None
    assert mean_interval(equal) == (4, 4)
    assert difference_interval(equal, equal - 1) == (1, 1)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_cover_the_true_value_in_95_of_100_studies(seeds):
    rng = np.random.default_rng(0)
    studies, mean, difference = 1000, 0, 0
    for _ in range(studies):
        ours, theirs = rng.normal(5, 1, seeds), rng.normal(7, 2, seeds)
        low, high = mean_interval(ours)
        mean += low <= 5 <= high
        low, high = difference_interval(ours, theirs)
        difference += low <= -2 <= high
    assert 0.93 <= mean / studies <= 0.97
    assert 0.93 <= difference / studies <= 0.98  # Welch's is a little too wide for three runs


def test_equal_groups_are_called_different_in_at_most_5_of_100_studies():
    rng = np.random.default_rng(0)
    p_values = [permutation_p(*rng.normal(0, 1, (2, 5))) for _ in range(1000)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.06


@given(SCORES, SCORES)
def test_permutation_p_agrees_with_brute_force(ours, theirs):
    both = [*ours, *theirs]
    observed = abs(ours.mean() - theirs.mean())
    found = []
    for chosen in combinations(range(len(both)), len(ours)):
        rest = [both[i] for i in range(len(both)) if i not in chosen]
        found.append(abs(np.mean([both[i] for i in chosen]) - np.mean(rest)) >= observed - 1e-9)
    assert permutation_p(ours, theirs) == pytest.approx(np.mean(found))


@pytest.mark.parametrize("unit", [1e-90, 1e-14, 1e4 / 3, 1e8 / 7, 1e90])
@given(SCORES, SCORES)
def test_the_unit_of_a_metric_changes_no_conclusion(unit, ours, theirs):
    ours, theirs = ours + 60.1, theirs + 60.1
    scaled = unit * ours, unit * theirs
    assert permutation_p(*scaled) == pytest.approx(permutation_p(ours, theirs))
    assert difference_interval(*scaled) == pytest.approx(
        [unit * bound for bound in difference_interval(ours, theirs)], rel=1e-6, abs=1e-9 * unit
    )
    assert sign_flip_p(unit * ours - unit * 50) == pytest.approx(sign_flip_p(ours - 50))


def test_permutation_p_by_hand_and_of_many_runs():
    # Of the C(6, 3) = 20 assignments, two are as far apart as the real one.
    assert permutation_p(np.array([1.0, 2, 3]), np.array([7.0, 8, 9])) == pytest.approx(2 / 20)
    assert permutation_p(np.array([1.0, 2, 3]), np.array([1.0, 2, 3])) == 1
    rng = np.random.default_rng(0)
    assert permutation_p(rng.normal(0, 1, 30), rng.normal(3, 1, 30)) < 0.01


@pytest.mark.parametrize(("n", "m"), [(3, 3), (3, 4), (4, 4), (5, 6)])
def test_smallest_p_is_that_of_groups_far_apart(n, m):
    ours, theirs = np.arange(n, dtype=float), 1000.0 + np.arange(m) ** 2
    assert smallest_p(n, m) == pytest.approx(permutation_p(ours, theirs))


def test_seeds_needed_for_significance():
    assert [seeds_needed(tests) for tests in (1, 3, 10, 190)] == [4, 5, 6, 8]


@given(SCORES, SCORES)
def test_probability_of_improvement_counts_pairs(ours, theirs):
    lower = sum((a < b) + (a == b) / 2 for a in ours for b in theirs)
    assert probability_of_improvement(ours, theirs) == pytest.approx(
        lower / (len(ours) * len(theirs))
    )


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.999))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values, alpha):
    adjusted = holm(p_values)
    rejected = set()
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] * (len(p_values) - rank) > alpha:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected


def test_holm_by_hand():
    # .01*3, then .02*2, then .04*1 but not below the one before
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_pareto_front_by_hand():
    points = [(3.0, 0.1), (1.0, 0.3), (2.0, 0.3), (2.0, 0.2), (4.0, 0.2)]
    assert pareto_front(points) == [1, 3, 0]
    assert pareto_front([]) == []


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=8))
def test_the_sign_flip_test_counts_every_choice_of_signs(values):
    differences = np.array(values, float)
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True)))
            for signs in product((1, -1), repeat=len(values))]  # fmt: skip
    expected = sum(one >= abs(sum(values)) for one in sums) / len(sums)
    assert sign_flip_p(differences) == pytest.approx(expected)


def test_the_sign_flip_test_of_many_scenes_is_sampled_and_repeatable():
    differences = np.random.default_rng(0).normal(0.3, 1, 40)
    p = sign_flip_p(differences)
    assert p == sign_flip_p(differences)
    t = differences.mean() / (differences.std(ddof=1) / 40**0.5)
    assert p == pytest.approx(2 * (1 - NormalDist().cdf(t)), abs=0.02)
