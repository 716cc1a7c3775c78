"""Spreading metric points: what must hold for any picture, and that a second formula agrees."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.base.errors import UserError
from zoerefine.depth.data import metric_points
from zoerefine.depth.data.metric_points import NO_POINTS, MetricPoints
from zoerefine.depth.points import gaussian_process, spread
from zoerefine.depth.points.spread import spread_points


def scene(height=48, width=64, seed=0):
    """A smooth true depth with a step, and a pseudo depth with an error of scale and of place."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    truth_m = 2 + 2 * y + np.where(x > 0.5, 1.5, 0) + 0.3 * np.sin(4 * x + rng.uniform(0, 6))
    error = 0.4 + 0.3 * x - 0.2 * np.where(truth_m > 4, 1, 0)
    return truth_m.astype(np.float32), (truth_m * np.exp(-error)).astype(np.float32)


def points_of(truth_m, count, seed=0, noise=0.0, outliers=0):
    rng = np.random.default_rng(seed)
    y, x = (rng.integers(0, side, count) for side in truth_m.shape)
    depth_m = truth_m[y, x] * np.exp(noise * rng.standard_normal(count))
    depth_m[:outliers] *= 3
    return MetricPoints(x.astype(float), y.astype(float), depth_m, np.zeros(count))


def covariances_of(pseudo_m, points):
    """Of the Gaussian process without a grid: of the points with noise, of pixels with points."""
    rows, columns = points.y.astype(int), points.x.astype(int)
    pixels = np.indices(pseudo_m.shape).reshape(2, -1) / max(pseudo_m.shape)
    at_pixels = np.vstack([pixels, np.log(pseudo_m).reshape(1, -1)]).T
    at_points = at_pixels.reshape(*pseudo_m.shape, 3)[rows, columns]

    def covariance(a, b):
        distance = np.abs(a[:, None] - b[None]).sum(2)
        return gaussian_process.SCALE**2 + gaussian_process.LOCAL**2 * np.exp(
            -distance / gaussian_process.LENGTH
        )

    noise = gaussian_process.NOISE**2 * np.eye(len(rows))
    return covariance(at_points, at_points) + noise, covariance(at_pixels, at_points)


def abs_rel(depth_m, truth_m):
    return float(np.mean(np.abs(depth_m - truth_m) / truth_m))


def test_without_points_depth_stays_as_it_is():
    _, pseudo_m = scene()
    np.testing.assert_array_equal(spread_points(pseudo_m, NO_POINTS), pseudo_m)


def test_masked_pixels_and_points_do_not_count():
    truth_m, pseudo_m = scene()
    hidden = pseudo_m > 3
    masked_m = np.ma.masked_array(pseudo_m, mask=hidden)
    points = points_of(truth_m, 8)
    found_m = spread_points(masked_m, points)
    np.testing.assert_array_equal(found_m, spread_points(np.where(hidden, 0, pseudo_m), points))
    depth_m = np.ma.masked_array(points.depth_m, mask=np.arange(8) >= 5)
    found_m = spread_points(pseudo_m, MetricPoints(points.x, points.y, depth_m, points.sigma_m))
    np.testing.assert_array_equal(found_m, spread_points(pseudo_m, points.select(np.arange(5))))


@pytest.mark.parametrize("change", [
    lambda pseudo_m: (pseudo_m * 256).astype(np.uint16),  # as `Refiner` takes it
    lambda pseudo_m: pseudo_m[None],
], ids=["integers", "a batch"])  # fmt: skip
def test_depth_that_is_no_picture_of_metres_is_refused(change):
    truth_m, pseudo_m = scene()
    with pytest.raises(UserError, match=r"give floats \[H, W\] in metres") as caught:
        spread_points(change(pseudo_m), points_of(truth_m, 8))
    assert len(str(caught.value).splitlines()) == 1


def test_more_points_correct_more():
    truth_m, pseudo_m = scene()
    errors = [abs_rel(spread_points(pseudo_m, points_of(truth_m, n)), truth_m) for n in (1, 8, 50)]
    assert abs_rel(pseudo_m, truth_m) > 1.5 * errors[0]
    assert errors[0] > 1.5 * errors[1] > 2 * errors[2]
    assert errors[2] < 0.02


def test_one_point_scales_the_picture_towards_its_depth():
    truth_m, _ = scene()
    found = spread_points(truth_m / 2, points_of(truth_m, 1))
    assert 1.8 < float(np.median(found / truth_m * 2)) <= 2.001


def test_outliers_are_left_out():
    truth_m, pseudo_m = scene()
    clean = abs_rel(spread_points(pseudo_m, points_of(truth_m, 50, noise=0.03)), truth_m)
    few = points_of(truth_m, 50, noise=0.03, outliers=5)
    assert abs_rel(spread_points(pseudo_m, few), truth_m) < 1.5 * clean
    believed = spread.OUTLIER
    try:
        spread.OUTLIER = 1e9  # every point counts
        assert abs_rel(spread_points(pseudo_m, few), truth_m) > 3 * clean
    finally:
        spread.OUTLIER = believed


def test_equal_points_are_one_point():
    """Twice, an outlier would agree with itself."""
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, 50, noise=0.03, outliers=10)
    twice = points.select(np.tile(np.arange(50), 2))
    found = spread_points(pseudo_m, twice)
    np.testing.assert_array_equal(found, spread_points(pseudo_m, points))


def test_a_stated_sigma_makes_a_point_count_less():
    truth_m, _ = scene()
    wrong = MetricPoints(*(np.array([value]) for value in (30.0, 20.0, truth_m[20, 30] * 2, 0.0)))
    unsure = MetricPoints(wrong.x, wrong.y, wrong.depth_m, wrong.depth_m * 2)
    moved = [spread_points(truth_m, one)[20, 30] / truth_m[20, 30] for one in (wrong, unsure)]
    assert 1.7 < moved[0] < 2.01
    assert 1.0 < moved[1] < 1.2


def test_a_negative_sigma_is_refused_where_its_point_would_count():
    """Some programs write -1 for what they do not know, and the noise squares it."""
    _, pseudo_m = scene()
    unknown = MetricPoints([3, 4, 99], [5, 6, 7], [2.0, -1.0, 2.0], [np.nan, -1.0, -1.0])
    spread_points(pseudo_m, unknown)  # the others are none of the picture
    with pytest.raises(UserError, match="sigma_m of points must not be negative, got -1: NaN says"):
        spread_points(pseudo_m, MetricPoints([3, 4], [5, 6], [2.0, 2.0], [0.0, -1.0]))


def test_points_at_invalid_pixels_are_not_used_and_these_stay_invalid():
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, 30)
    pseudo_m[:, :20] = 0
    found = spread_points(pseudo_m, points)
    assert (found[:, :20] == 0).all()
    kept = points.select(points.x >= 20)
    np.testing.assert_array_equal(found, spread_points(pseudo_m, kept))


@pytest.mark.parametrize("wrong", [
    (np.nan, 4, 2, 0), (4, np.inf, 2, 0), (64, 4, 2, 0), (4, -1, 2, 0),
    (4, 4, np.nan, 0), (4, 4, np.inf, 0), (4, 4, -2, 0), (4, 4, 2, np.inf),
])  # fmt: skip
def test_points_outside_the_picture_or_without_a_value_are_not_used(wrong):
    _, pseudo_m = scene()
    good = 10, 20, 3.0, 0
    both = MetricPoints(*zip(good, wrong, strict=True))
    alone = spread_points(pseudo_m, MetricPoints(*([value] for value in good)))
    np.testing.assert_array_equal(spread_points(pseudo_m, both), alone)
    assert not np.array_equal(alone, pseudo_m)


@pytest.mark.parametrize("invalid", [np.nan, np.inf, -1])
def test_non_finite_and_negative_depth_is_invalid(invalid):
    truth_m, pseudo_m = scene()
    points = points_of(truth_m[10:], 20)
    points = MetricPoints(points.x, points.y + 10, points.depth_m, points.sigma_m)
    zero_m, wrong_m = pseudo_m.copy(), pseudo_m.copy()
    zero_m[:10], wrong_m[:10] = 0, invalid
    np.testing.assert_array_equal(spread_points(wrong_m, points), spread_points(zero_m, points))


def test_more_points_than_the_limit_are_thinned(monkeypatch):
    truth_m, pseudo_m = scene()
    monkeypatch.setattr(metric_points, "MAX_POINTS", 40)
    points = points_of(truth_m, 2000)
    rows = spread.tensor_of(points, pseudo_m)[0, :, 1]
    assert len(rows) == 40
    assert rows.min() < 5 and rows.max() > 42  # from the whole picture
    assert abs_rel(spread_points(pseudo_m, points), truth_m) < 0.03


@pytest.mark.numeric
def test_the_grid_gives_the_mean_of_the_gaussian_process():
    """Rasmussen and Williams, eq. 2.25, computed at every pixel without a grid."""
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, 20, seed=3)
    system, cross = covariances_of(pseudo_m, points)
    error = np.log(points.depth_m / pseudo_m[points.y.astype(int), points.x.astype(int)])
    mean = cross @ np.linalg.solve(system, error)
    expected = pseudo_m * np.exp(mean.reshape(pseudo_m.shape))
    depth = torch.from_numpy(pseudo_m)[None, None]
    found = spread.spread(depth, spread.tensor_of(points, pseudo_m))
    np.testing.assert_allclose(found[0, 0], expected, rtol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_callers_default_type_changes_nothing(dtype):
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, 40)
    expected = spread_points(pseudo_m, points)
    torch.set_default_dtype(dtype)
    try:
        found = spread_points(pseudo_m, points)
    finally:
        torch.set_default_dtype(torch.float32)
    assert np.array_equal(found, expected)


def test_a_picture_in_a_batch_is_corrected_as_alone():
    pictures = [scene(seed=seed) for seed in range(3)]
    depth = torch.from_numpy(np.stack([pseudo_m for _, pseudo_m in pictures]))[:, None]
    points = torch.zeros(3, 30, 4)  # the second picture has none, the third fewer
    for number, count in ((0, 30), (2, 12)):
        truth_m, pseudo_m = pictures[number]
        points[number, :count] = spread.tensor_of(points_of(truth_m, count), pseudo_m)[0]
    together, hints01 = spread.spread_with_hints(depth, points)
    assert (together[1] == depth[1]).all()
    assert (hints01[1] == spread.no_hints(depth[[1]])).all()
    for number, count in ((0, 30), (2, 12)):
        alone, hints_alone = spread.spread_with_hints(depth[[number]], points[[number], :count])
        torch.testing.assert_close(together[[number]], alone, rtol=1e-5, atol=0)
        torch.testing.assert_close(hints01[[number]], hints_alone, rtol=1e-5, atol=1e-7)


def test_more_is_known_near_points_and_with_more_of_them():
    truth_m, pseudo_m = scene()
    depth = torch.from_numpy(pseudo_m)[None, None]

    def known_by(*places):
        values = [[x, y, truth_m[y, x], 0.0] for x, y in places]
        return spread.spread_with_hints(depth, torch.tensor([values]))[1][0, 0]

    one, two = known_by((10, 10)), known_by((10, 10), (12, 12))
    assert 0 < one[40, 60] < one[10, 10] < two[10, 10] <= 1


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(0, 12), st.integers(0, 10**6),
    st.sampled_from([1e-3, 1.0, 500.0]),
)  # fmt: skip
def test_any_picture_and_points_give_finite_depth(height, width, count, seed, scale):
    rng = np.random.default_rng(seed)
    pseudo_m = (rng.random((height, width)) * scale).astype(np.float32)
    pseudo_m[rng.random((height, width)) < 0.2] = 0
    x, y = rng.uniform(-0.5, width - 0.5, count), rng.uniform(-0.5, height - 0.5, count)
    depth_m = rng.uniform(1e-3, 1000, count)
    points = spread.tensor_of(MetricPoints(x, y, depth_m, rng.random(count)), pseudo_m)
    found = spread.spread_twice(torch.from_numpy(pseudo_m)[None, None], points)[0, 0].numpy()
    assert found.dtype == np.float32 and found.shape == pseudo_m.shape
    assert np.isfinite(found).all()
    assert ((found > 0) == (pseudo_m > 0)).all()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(
            st.lists(
                st.one_of(st.just(float("nan")), st.floats(0, allow_nan=False)),
                min_size=n,
                max_size=n,
            ),
            min_size=1,
            max_size=4,
        )
    )
)
def test_its_median_has_the_bits_of_torchs_own(rows):
    values = torch.tensor(rows, dtype=torch.float64)
    expected = values.nanmedian(1, keepdim=True).values
    torch.testing.assert_close(spread.nan_median(values), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("factor", "unit"), [(100, "centimetres"), (1000, "millimetres")])
def test_points_in_another_unit_are_refused(factor, unit):
    """Also where one of them is usable: 2 m are 2000 in millimetres, and 0.9 m are 900."""
    truth_m, pseudo_m = scene()
    points = points_of(truth_m, 20)
    for nearest_m in (2.0, 0.9):
        points.depth_m[0] = nearest_m
        wrong = MetricPoints(points.x, points.y, points.depth_m * factor, points.sigma_m)
        with pytest.raises(UserError, match=f"seems to be in {unit}; write metres"):
            spread_points(pseudo_m, wrong)
