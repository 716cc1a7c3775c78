"""Statistics against cases computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.analysis.seed_statistics import (
    bootstrap_interval,
    cliffs_delta,
    holm,
    interquartile_mean,
    pareto_front,
    permutation_p,
    probability_of_improvement,
)


def test_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([1, 2, 3, 4])) == 2.5
    assert interquartile_mean(np.array([100, 2, 3, -50])) == 2.5
    # Of five, a quarter is 1.25: the first and last go, and a quarter of the second and fourth.
    expected = (0.75 * 2 + 3 + 0.75 * 10) / 2.5
    assert interquartile_mean(np.array([1, 2, 3, 10, 99])) == pytest.approx(expected)
    assert interquartile_mean(np.array([7.0])) == 7.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_interquartile_mean_lies_inside_and_ignores_order(values):
    value = interquartile_mean(np.array(values))
    assert min(values) - 1e-6 <= value <= max(values) + 1e-6
    assert value == pytest.approx(interquartile_mean(np.array(values[::-1])), abs=1e-6)


def test_probability_of_improvement_by_hand():
    ours, theirs = np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[3.0, 5.0], [1.0, 5.0]])
    # Scene 1: 1<3, 1=1, 2<3, 2>1 -> (1 + .5 + 1 + 0) / 4; scene 2: all equal -> .5
    assert probability_of_improvement(ours, theirs) == pytest.approx((0.625 + 0.5) / 2)
    assert probability_of_improvement(ours - 9, theirs) == 1


def test_cliffs_delta_by_hand():
    assert cliffs_delta(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 1
    assert cliffs_delta(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == -1
    # 1<2, 1<3, 4>2, 4>3
    assert cliffs_delta(np.array([1.0, 4.0]), np.array([2.0, 3.0])) == 0


def test_permutation_p_by_hand():
    # Of the C(6, 3) = 20 ways to deal the labels, two are as far apart as the real one.
    assert permutation_p(np.array([1.0, 2, 3]), np.array([7.0, 8, 9])) == pytest.approx(2 / 20)
    assert permutation_p(np.array([1.0, 2, 3]), np.array([1.0, 2, 3])) == 1
    rng = np.random.default_rng(0)
    assert permutation_p(rng.normal(0, 1, 30), rng.normal(3, 1, 30)) < 0.01


def test_holm_by_hand():
    # .01*3, then .02*2, then .04*1 but not below the one before
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_bootstrap_needs_three_runs_and_covers_what_it_should():
    assert bootstrap_interval(np.array([[1.0], [2.0]])) is None
    low, high = bootstrap_interval(np.full((3, 2), 4.0))
    assert (low, high) == (4, 4)
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(60):
        low, high = bootstrap_interval(rng.normal(5, 1, (20, 1)), seed=seed)
        covered += low <= 5 <= high
    assert covered >= 50


def test_bootstrap_is_stratified_by_scene():
    # Scenes differ by 100, runs by nothing: resampling within scenes leaves no uncertainty.
    scores = np.array([[0.0, 100.0]] * 3)
    assert bootstrap_interval(scores) == (50, 50)


def test_pareto_front_by_hand():
    points = [(3.0, 0.1), (1.0, 0.3), (2.0, 0.3), (2.0, 0.2), (4.0, 0.2)]
    assert pareto_front(points) == [1, 3, 0]
    assert pareto_front([]) == []
