"""A room's calibration: its algebra by another way, and what wrong measurements do."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processes import run_new_python
from zoerefine.depth.points import room as room_module
from zoerefine.depth.points.room import (
    Measurement,
    RoomPictures,
    calibrate,
    next_place,
    unseen_errors,
)
from zoerefine.depth.points.room_prior import RoomPrior, features

COUNT = 6


def random_prior(rng):
    root = 0.3 * rng.normal(size=(COUNT, COUNT))
    return RoomPrior(rng.normal(size=COUNT), root @ root.T + 0.01 * np.eye(COUNT), 0.05, 0.04, "")


def measurements(rng, coefficients, frames, points, noise=0.03, effect=0.1):
    """Measured pixels of a room with these coefficients."""
    found = []
    for frame in range(frames):
        shift = effect * rng.normal()
        for _ in range(points):
            row = features(rng.uniform(0.5, 6), *rng.uniform(0, 1, 2))
            log_m = row @ coefficients + shift + noise * rng.normal()
            found.append(Measurement(str(frame), row, math.exp(log_m)))
    return found


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 6))
def test_the_posterior_is_that_of_the_joint_normal_distribution(seed, frames, points):
    """The coefficients and the effects of frames as one vector, by its precision matrix."""
    rng = np.random.default_rng(seed)
    prior = random_prior(rng)
    measured = measurements(rng, prior.mean, frames, points)
    found = calibrate(prior, measured)
    rows = np.stack([one.features for one in measured])
    frame = np.eye(frames)[[int(one.frame) for one in measured]]
    joint = np.hstack([rows, frame])
    # The weights and the variance are those that the calibration ended with.
    noise = found.pixel_variance / found.weights + room_module.MEASURED_SHARE**2
    precision = np.zeros((COUNT + frames,) * 2)
    precision[:COUNT, :COUNT] = np.linalg.inv(prior.covariance)
    precision[COUNT:, COUNT:] = np.eye(frames) / prior.frame_variance
    told = precision[:, :COUNT] @ prior.mean
    precision += joint.T @ (joint / noise[:, None])
    told += joint.T @ (np.log([one.metres for one in measured]) / noise)
    np.testing.assert_allclose(found.mean, np.linalg.solve(precision, told)[:COUNT], atol=2e-3)
    covariance = np.linalg.inv(precision)[:COUNT, :COUNT]
    np.testing.assert_allclose(found.covariance, covariance, atol=2e-3)


def test_without_measurements_it_is_the_prior():
    prior = RoomPrior.shipped()
    found = calibrate(prior, [])
    np.testing.assert_array_equal(found.mean, prior.mean)
    np.testing.assert_array_equal(found.covariance, prior.covariance)


def test_depth_has_less_relative_error_than_the_median():
    room = calibrate(RoomPrior.shipped(), [])
    rows = features(np.full(20_000, 2.0), 0.5, 0.5)
    noise = math.sqrt(room.pixel_variance) * np.random.default_rng(0).normal(size=len(rows))
    median = np.exp(rows @ room.mean)
    true = median * np.exp(noise)
    of_median, found = (np.mean(np.abs(m - true) / true) for m in (median, room.depth_m(rows)))
    assert found < 0.98 * of_median


def test_more_measurements_move_it_from_the_prior_to_the_room():
    rng = np.random.default_rng(0)
    prior = RoomPrior.shipped()
    root = np.linalg.cholesky(prior.covariance)
    true = prior.mean + root @ rng.normal(size=COUNT)
    apart, doubt = [], []
    for frames in (0, 1, 3, 20, 100):
        found = calibrate(prior, measurements(rng, true, frames, 5))
        rows = features(np.linspace(0.5, 6, 50), 0.5, 0.5)
        apart.append(float(np.abs(rows @ (found.mean - true)).mean()))
        doubt.append(float(found.shared_variance(rows).mean()))
    assert doubt == sorted(doubt, reverse=True)
    assert apart[-1] < 0.1 * apart[0]


@pytest.mark.parametrize("wrong", [1, 3])
def test_wrong_measurements_lose_their_weight(wrong):
    rng = np.random.default_rng(1)
    prior = RoomPrior.shipped()
    rows = features(np.linspace(0.5, 6, 50), 0.5, 0.5)
    apart = []
    for _ in range(20):
        true = prior.mean + np.linalg.cholesky(prior.covariance) @ rng.normal(size=COUNT)
        measured = measurements(rng, true, 3, 5)
        clean = calibrate(prior, measured)
        for i in range(wrong):
            measured[5 * i] = replace(measured[5 * i], metres=measured[5 * i].metres * 5)
        found = calibrate(prior, measured)
        apart.append(np.abs(rows @ (found.mean - clean.mean)).mean())
        assert max(found.weights[: 5 * wrong : 5]) < 0.5
    assert np.mean(apart) < 0.6 * math.log(5) * wrong / 15  # a mean of them all: log(5) / 15 each


def test_a_distance_between_two_pixels_tells_the_scale():
    rng = np.random.default_rng(2)
    prior = RoomPrior.shipped()
    true = prior.mean + np.linalg.cholesky(prior.covariance) @ rng.normal(size=COUNT)
    measured = []
    for frame in range(40):
        places = rng.uniform(0.1, 0.9, (2, 2))
        pixels = [features(rng.uniform(1, 4), *place) for place in places]
        rays = np.column_stack([places - 0.5, np.ones(2)])
        first, second = np.exp(np.stack(pixels) @ true)[:, None] * rays
        metres = float(np.linalg.norm(first - second))
        measured.append(Measurement(str(frame), pixels[0], metres, pixels[1], rays))
    found = calibrate(prior, measured)
    rows = features(np.linspace(1, 4, 20), 0.5, 0.5)
    assert np.abs(rows @ (found.mean - true)).max() < 0.1
    assert np.abs(rows @ (prior.mean - true)).max() > 0.2


def test_the_next_place_is_where_a_measurement_removes_most_variance():
    rng = np.random.default_rng(3)
    prior = RoomPrior.shipped()
    near, far = np.full((36, 48), 0.4), np.full((36, 48), 6.0)
    measured = [Measurement("far", features(6.0, x, 0.5), 5.0) for x in rng.uniform(0, 1, 5)]
    place = next_place(calibrate(prior, measured), {"near": near, "far": far})
    assert place.frame == "near"
    assert "something near" in place.words
    assert 0 < place.gain < 1


def test_a_corrected_picture_has_the_depth_and_spread_of_its_pixels():
    rng = np.random.default_rng(5)
    depth_m = np.exp(rng.uniform(np.log(0.06), np.log(250), (20, 30))).astype(np.float32)
    depth_m[0, 0], depth_m[1, 1] = 0, np.nan
    prior = RoomPrior.shipped()
    room = calibrate(prior, measurements(rng, prior.mean, 3, 5))
    found_m, spread = RoomPictures.of(room, 20, 30).corrected_m(depth_m)
    assert found_m.dtype == spread.dtype == np.float32
    valid = depth_m > 0
    assert (found_m > 0).tolist() == (spread > 0).tolist() == valid.tolist()
    y, x = np.nonzero(valid)
    rows = features(depth_m[valid], (x + 0.5) / 30, (y + 0.5) / 20)
    np.testing.assert_allclose(found_m[valid], room.depth_m(rows), rtol=1e-4)
    np.testing.assert_allclose(spread[valid], room.spread(rows), rtol=1e-4)


def test_the_intervals_of_factor_and_range_become_narrower():
    rng = np.random.default_rng(6)
    prior = RoomPrior.shipped()
    rooms = [calibrate(prior, measurements(rng, prior.mean, frames, 5)) for frames in (0, 3, 30)]
    for ranges in ([one.factor() for one in rooms], [one.exponent() for one in rooms]):
        assert all(one.low < one.middle < one.high for one in ranges)
        widths = [one.high - one.low for one in ranges]
        assert widths == sorted(widths, reverse=True)


def test_it_needs_no_torch():
    program = "import sys, zoerefine.depth.points.measured; print('torch' in sys.modules)"
    assert run_new_python(program).stdout == "False\n"


def test_the_gain_of_a_place_is_what_measuring_it_removes():
    """Against the covariance after one more linear measurement, by its precision matrix.

    The frame's effect is one more coefficient, which its measurement says something of already.
    """
    prior = RoomPrior.shipped()
    measured = measurements(np.random.default_rng(0), prior.mean, 1, 3)
    measured = [replace(one, frame="one") for one in measured]
    room = calibrate(prior, measured)
    depth_m = np.tile(np.linspace(0.5, 6, 48), (36, 1))
    place = next_place(room, {"one": depth_m}, measured)
    noise = room.pixel_variance / room.weights + room_module.MEASURED_SHARE**2
    told = np.stack([np.append(one.features, 1) for one in measured])
    # The room's precision holds what the measurements say when the effect is integrated out.
    effect = np.sum(1 / noise) + 1 / room.frame_variance
    cross = np.sum(told[:, :COUNT] / noise[:, None], 0)
    precision = np.zeros((COUNT + 1,) * 2)
    precision[:COUNT, :COUNT] = np.linalg.inv(room.covariance) + np.outer(cross, cross) / effect
    precision[COUNT, :COUNT] = precision[:COUNT, COUNT] = cross
    precision[COUNT, COUNT] = effect
    grid = room_module.places(depth_m)
    rows = np.stack([features(m, (x + 0.5) / 48, (y + 0.5) / 36) for x, y, m in grid])
    before = np.mean(np.sum((rows @ room.covariance) * rows, -1))
    left = []
    for row in np.hstack([rows, np.ones((len(rows), 1))]):
        new = room.pixel_variance + room_module.MEASURED_SHARE**2
        after = np.linalg.inv(precision + np.outer(row, row) / new)[:COUNT, :COUNT]
        left.append(np.mean(np.sum((rows @ after) * rows, -1)))
    assert (place.x, place.y) == grid[int(np.argmin(left))][:2]
    assert place.gain == pytest.approx(1 - min(left) / before, rel=1e-4)


def test_another_frame_says_more_than_one_that_was_measured():
    depth_m = np.tile(np.linspace(0.5, 6, 48), (36, 1))
    prior = RoomPrior.shipped()
    measured = measurements(np.random.default_rng(1), prior.mean, 1, 5)
    frames = {"0": depth_m, "1": depth_m}
    assert next_place(calibrate(prior, measured), frames, measured).frame == "1"


@pytest.mark.parametrize(("frames", "points"), [(3, 4), (1, 6)])
def test_unseen_errors_are_those_of_measurements_that_others_predict(frames, points):
    """Rasmussen and Williams, eq. 2.25, from the other frames alone; of one, its other points."""
    rng = np.random.default_rng(3)
    prior = random_prior(rng)
    measured = measurements(rng, prior.mean, frames, points)
    room = calibrate(prior, measured)
    rows = np.stack([one.features for one in measured])
    error = np.log([one.metres for one in measured]) - rows @ prior.mean
    frame = np.array([int(one.frame) for one in measured])
    known = rows @ prior.covariance @ rows.T + prior.frame_variance * (frame[:, None] == frame)
    noise = room.pixel_variance / room.weights + room_module.MEASURED_SHARE**2
    found = unseen_errors(prior, measured, room)
    for number in range(len(measured)):
        rest = frame != frame[number] if frames > 1 else np.arange(points) != number
        system = known[np.ix_(rest, rest)] + np.diag(noise[rest])
        expected = error[number] - known[number, rest] @ np.linalg.solve(system, error[rest])
        assert found[number] == pytest.approx(expected, rel=1e-6)
