"""Metrics against an independent NumPy implementation of the protocol, and their exactness."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol import plain_metrics
from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.depth import metrics

pytestmark = pytest.mark.numeric


def pictures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(count, 1, 6, 7, generator=generator) * 12
    truth[torch.rand(truth.shape, generator=generator) < 0.3] = 0
    depth = truth * torch.exp(0.5 * torch.randn(truth.shape, generator=generator)) + 1e-2
    return depth, truth


def accumulate(depth, truth, sizes):
    found = metrics.DepthMetrics()
    for d, t in zip(depth.split(sizes), truth.split(sizes), strict=True):
        found.add(metrics.picture_metrics(d, t, metrics.valid_pixels(t, d)))
    return found.compute()


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_every_metric_equals_the_reference(seed):
    depth, truth = pictures(1, seed)
    ours = accumulate(depth, truth, 1)
    keep = (truth > 1e-3) & (truth < 10)
    theirs = plain_metrics(depth[keep].double().numpy(), truth[keep].double().numpy())
    assert set(ours) == set(metrics.NAMES) == set(theirs)
    for name, value in theirs.items():
        assert math.isclose(ours[name], value, rel_tol=1e-9, abs_tol=1e-12), name


def test_a_picture_without_truth_is_left_out():
    depth, truth = pictures(3, 1)
    alone = accumulate(depth, truth, 3)
    depth, truth = torch.cat([depth, depth[:1]]), torch.cat([truth, torch.zeros_like(truth[:1])])
    assert accumulate(depth, truth, 4) == alone
    assert accumulate(depth[3:], truth[3:], 1) == {}


def test_a_nan_truth_is_an_invalid_pixel():
    depth, truth = pictures(3, 1)
    spoiled = torch.where(truth > 0, truth, math.nan)
    assert accumulate(depth, spoiled, 3) == accumulate(depth, truth, 3)


def test_a_picture_of_a_single_pixel_has_metrics():
    found = accumulate(torch.full((1, 1, 1, 1), 3.0), torch.full((1, 1, 1, 1), 2.0), 1)
    assert (found["abs_rel"], found["rmse"], found["silog"]) == (0.5, 1, 0)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), factor=st.floats(0.2, 1))
def test_relative_metrics_do_not_change_when_both_depths_are_scaled(seed, factor):
    depth, truth = pictures(2, seed)
    depth, truth = depth.clamp(0.1, 9), torch.where(truth > 9, 0, truth.clamp(0.1))
    found, scaled = (accumulate(s * depth, s * truth, 2) for s in (1, factor))
    for name in ("abs_rel", "rmse_log", "log10", "silog"):
        assert math.isclose(found[name], scaled[name], rel_tol=1e-5), name
    for name in ("sq_rel", "rmse"):
        assert math.isclose(found[name] * factor, scaled[name], rel_tol=1e-5), name


def test_boundary_f1_by_hand():
    truth = torch.tensor([1.0, 1.0, 2.0, 2.0]).expand(1, 1, 3, 4)
    mask = torch.ones(1, 1, 3, 4, dtype=torch.bool)
    assert metrics.boundary_f1(truth, truth, mask).item() == 1
    assert metrics.boundary_f1(truth * 3, truth, mask).item() == 1  # scale does not matter
    moved = torch.tensor([1.0, 2.0, 2.0, 2.0]).expand(1, 1, 3, 4)
    assert metrics.boundary_f1(moved, truth, mask).item() == 0
    # One edge too many, half as high: 6 predicted, 3 true below t = sqrt(2): F1 = 2/3 everywhere.
    doubled = torch.tensor([1.0, 2**0.5, 2.0, 2.0]).expand(1, 1, 3, 4)
    assert math.isclose(metrics.boundary_f1(doubled, truth, mask).item(), 2 / 3)
    assert metrics.boundary_f1(truth * 0 + 1, truth * 0 + 1, mask).isnan().all()
    blind = mask.clone()
    blind[..., 2] = False
    assert metrics.boundary_f1(
        moved, truth, blind
    ).isnan()  # its edge lies where the truth has none
    # The truth has an edge below t = 1.1 only: a depth without it, with it, with one twice as high.
    low = torch.tensor([1.0, 1.0, 1.1, 1.1]).expand(1, 1, 3, 4)
    flat = torch.ones(1, 1, 3, 4)
    found = [metrics.boundary_f1(depth, low, mask).item() for depth in (flat, low, truth)]
    assert found == [0, 1, 1]


def test_distances_of_objects_are_medians_over_valid_pixels():
    truth = torch.full((2, 1, 4, 8), 3.0)
    depth = truth * 1.5
    objects = torch.zeros(2, 1, 4, 8, dtype=torch.uint8)
    objects[0, :, :2], objects[0, :, 3, :4], objects[1] = 1, 2, 5
    depth[1, 0, 0, 0] = 100
    mask = torch.ones_like(objects, dtype=torch.bool)
    found = metrics.object_distances(depth, truth, objects, mask)
    assert found.tolist() == [[4.5, 3.0], [4.5, 3.0]]  # object 2 is too small
    assert metrics.object_distances(depth, truth, objects, mask & False).shape == (0, 2)


def test_the_selection_metric_is_one_that_falls():
    assert metrics.table()[SELECTION_METRIC].lower_is_better


def test_a_metric_is_added_by_a_function_and_a_row(monkeypatch):
    largest = metrics.Metric(lambda e: e.difference.abs().amax((1, 2, 3)))
    monkeypatch.setitem(metrics.table(), "max_error", largest)
    monkeypatch.setattr(metrics, "NAMES", tuple(metrics.table()))
    truth = torch.full((1, 1, 2, 2), 2.0)
    found = accumulate(truth + torch.tensor([[0.0, 3.0], [1.0, 0.5]]), truth, 1)
    assert found["max_error"] == 3
