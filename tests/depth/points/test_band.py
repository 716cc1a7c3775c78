"""The band around depth that points correct: its algebra by another way, and what widens it."""

import numpy as np
import pytest
import torch

from tests.depth.points.test_spread import covariances_of, points_of, scene
from zoerefine.depth.data.metric_points import NO_POINTS, MetricPoints
from zoerefine.depth.points import band as bands
from zoerefine.depth.points import gaussian_process, spread
from zoerefine.depth.points.for_engines import WITHOUT_POINTS, points_alone_u16, spread_u16
from zoerefine.depth.points.gaussian_process import Process
from zoerefine.depth.points.room import quantile
from zoerefine.depth.points.spread import spread_points


def band_of(pseudo_m, points):
    depth = torch.from_numpy(pseudo_m)[None, None]
    return bands.band(depth, spread.tensor_of(points, pseudo_m))[0, 0].numpy()


@pytest.mark.numeric
def test_the_deviation_is_that_of_the_gaussian_process(monkeypatch):
    """Rasmussen and Williams, eq. 2.26, computed at every pixel without a grid."""
    monkeypatch.setattr(bands, "GRID", (48, 64, 200))
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, 20, seed=3)
    system, cross = covariances_of(pseudo_m, points)
    known = np.sum((cross @ np.linalg.inv(system)) * cross, 1)
    expected = np.sqrt(
        gaussian_process.SCALE**2 + gaussian_process.LOCAL**2 - known + gaussian_process.NOISE**2
    )
    depth = torch.from_numpy(pseudo_m)[None, None]
    process = Process.of(depth, spread.tensor_of(points, pseudo_m))
    found = bands.deviation(depth, process, process.there)[0, 0]
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=0.1)


@pytest.mark.numeric
@pytest.mark.parametrize("kind", ["random", "row"])
def test_scores_are_of_points_that_those_farther_away_predict(kind):
    """Rasmussen and Williams, eq. 2.25 and 2.26, from the points that are left."""
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, 12, seed=1, noise=0.05)
    if kind == "row":
        points = MetricPoints(points.x, np.full(12, 24.0), points.depth_m, points.sigma_m)
    depth = torch.from_numpy(pseudo_m)[None, None]
    process = Process.of(depth, spread.tensor_of(points, pseudo_m))
    found = bands.scores(depth, process, process.there)
    covariance, noise, error = (
        one[0].numpy() for one in (process.covariance, process.noise, process.error)
    )
    places = np.stack([points.y, points.x])
    rows, columns = (np.linspace(0, end, n) for end, n in zip((47, 63), bands.GRID, strict=False))
    pixels = np.stack(np.meshgrid(rows, columns)).reshape(2, -1)
    distances = np.linalg.norm(pixels[:, :, None] - places[:, None], axis=0).min(1)
    near = np.sort(distances)[(len(distances) - 1) // 2]
    several = 0
    for number in range(12):
        rest = np.linalg.norm(places - places[:, [number]], axis=0) > near
        several += (~rest).sum() > 1
        gain = covariance[number, rest] @ np.linalg.inv(
            covariance[np.ix_(rest, rest)] + np.diag(noise[rest])
        )
        variance = covariance[number, number] - gain @ covariance[rest, number] + noise[number]
        score = abs(error[number] - gain @ error[rest]) / np.sqrt(variance)
        assert found[number] == pytest.approx(score, rel=1e-6)
    assert several > (8 if kind == "row" else 0)


def test_the_quantile_joins_points_and_other_rooms():
    others = np.linspace(0, 2, 20)
    assert quantile(np.empty(0), others, 5.0) == pytest.approx(np.quantile(others, 0.9), abs=0.11)
    exact, wide = quantile(np.full(200, 0.1), others, 5.0), quantile(np.full(200, 9.0), others, 5.0)
    assert (exact, wide) == (0.1, 9.0)
    assert 0.1 < quantile(np.full(5, 0.1), others, 5.0) < quantile(np.empty(0), others, 5.0)


@pytest.mark.parametrize("kind", ["accurate", "inaccurate"])
def test_it_holds_nine_tenths_of_the_truth_of_good_and_of_bad_depth(kind):
    """In pictures with a smooth error, and with one that also differs from pixel to pixel."""
    inside = []
    for seed in range(8):
        truth_m, pseudo_m = scene(seed=seed)
        if kind == "inaccurate":
            rough = 0.2 * np.random.default_rng(seed).standard_normal(truth_m.shape)
            pseudo_m = (pseudo_m * np.exp(rough)).astype(np.float32)
        points = points_of(truth_m, 60, seed=seed)
        apart = np.abs(np.log(truth_m / spread_points(pseudo_m, points)))
        inside.append(np.mean(apart <= band_of(pseudo_m, points)))
    assert 0.85 <= np.mean(inside) <= 0.99, inside


def test_it_is_narrower_near_points_and_with_more_of_them():
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, 40)
    left = points.select(points.x < 20)
    found = band_of(pseudo_m, left)
    assert found[:, :20].mean() < 0.9 * found[:, 50:].mean()
    assert band_of(pseudo_m, points).mean() < found.mean()


def test_without_a_usable_point_it_is_the_engines_own_or_that_of_pseudo_depth():
    _, pseudo_m = scene()
    depth_u16 = (pseudo_m * 256).astype(np.uint16)
    depth_u16[:, :9] = 0
    at_invalid = MetricPoints([3], [3], [2.0], [0.1])
    for points in (NO_POINTS, at_invalid):
        found = spread_u16(depth_u16, points)
        expected = np.where(depth_u16 > 0, round(WITHOUT_POINTS * 10_000), 0)
        np.testing.assert_array_equal(found, expected)
        own = np.full(depth_u16.shape, 777, np.uint16)
        np.testing.assert_array_equal(spread_u16(depth_u16, points, own), own)


@pytest.mark.parametrize("count", [1, 30])
def test_points_of_sigma_0_are_kept_exactly(count):
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, count, noise=0.3)  # some are outliers to the others
    rows, columns = points.y.astype(int), points.x.astype(int)
    found_m = spread_points(pseudo_m, points)
    last = {(y, x): metres for y, x, metres in zip(rows, columns, points.depth_m, strict=True)}
    for (y, x), metres in last.items():
        assert found_m[y, x] == np.float32(metres)
    found_u16 = points_alone_u16((pseudo_m * 256).astype(np.uint16), points)
    for (y, x), metres in last.items():
        assert abs(found_u16[y, x] / 256 - metres) <= 0.5 / 256


def test_points_of_unknown_sigma_are_smoothed():
    truth_m, pseudo_m = scene()
    exact = points_of(truth_m, 30, noise=0.1)
    unknown = MetricPoints(exact.x, exact.y, exact.depth_m, np.full(30, np.nan))
    rows, columns = exact.y.astype(int), exact.x.astype(int)
    found_m, kept_m = (spread_points(pseudo_m, one) for one in (unknown, exact))
    assert (found_m[rows, columns] != exact.depth_m.astype(np.float32)).all()
    elsewhere = np.ones(truth_m.shape, bool)
    elsewhere[rows, columns] = False
    np.testing.assert_array_equal(found_m[elsewhere], kept_m[elsewhere])
