"""The best single factor: no other factor has a smaller mean AbsRel over pictures."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.training.calibration import fit_log_scale

pytestmark = pytest.mark.numeric


def batch(truth_m, zoe_m):
    truth_m, zoe_m = (torch.as_tensor(one, dtype=torch.float32) for one in (truth_m, zoe_m))
    rgb01 = torch.zeros(len(truth_m), 3, *truth_m.shape[2:])
    objects = torch.zeros(truth_m.shape, dtype=torch.uint8)
    return DeviceBatch(rgb01, zoe_m, truth_m, objects, torch.arange(len(truth_m)))


def random_pictures(seed, count=5):
    rng = np.random.default_rng(seed)
    truth_m = rng.uniform(0.5, 9, (count, 1, 6, 7))
    scale = np.exp(rng.normal(0.3, 0.4, (count, 1, 1, 1)))
    zoe_m = truth_m * scale * np.exp(rng.normal(0, 0.3, truth_m.shape))
    truth_m[rng.random(truth_m.shape) < 0.3] = 0
    return truth_m, zoe_m


def mean_abs_rel(factor, truth_m, zoe_m):
    """Means of |factor z - t| / t over the valid pixels of each picture, over pictures."""
    of_pictures = []
    for truth, zoe in zip(truth_m, zoe_m, strict=True):
        valid = truth > 0
        of_pictures.append(np.mean(np.abs(factor * zoe[valid] - truth[valid]) / truth[valid]))
    return np.mean(of_pictures)


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_no_other_factor_has_a_smaller_error(seed):
    truth_m, zoe_m = random_pictures(seed)
    found = math.exp(fit_log_scale([batch(truth_m, zoe_m)]))
    ours = mean_abs_rel(found, truth_m, zoe_m)
    for other in np.exp(np.linspace(-2, 2, 801)):
        assert ours <= mean_abs_rel(other, truth_m, zoe_m) * (1 + 1e-4)


def test_batches_of_any_size_give_the_same_factor():
    truth_m, zoe_m = random_pictures(0)
    whole = fit_log_scale([batch(truth_m, zoe_m)])
    parts = [batch(truth_m[k : k + 1], zoe_m[k : k + 1]) for k in range(len(truth_m))]
    assert fit_log_scale(parts) == whole


def test_a_pseudo_depth_of_constant_scale_is_corrected():
    truth_m = random_pictures(1)[0]
    assert fit_log_scale([batch(truth_m, truth_m * 1.3)]) == pytest.approx(-math.log(1.3), abs=1e-4)


def test_pictures_weigh_the_same_whatever_their_valid_pixels():
    truth_m = np.full((3, 1, 4, 4), 2.0)
    zoe_m = np.concatenate([np.full((1, 1, 4, 4), 2.0), np.full((2, 1, 4, 4), 1.0)])
    truth_m[1:, :, :, 1:] = 0  # a quarter of the pixels, but two pictures of three
    # At factor s: (|s - 1| + 2 |s / 2 - 1|) / 3, constant between 1 and 2.
    assert 1 - 1e-3 <= math.exp(fit_log_scale([batch(truth_m, zoe_m)])) <= 2 + 1e-3


def test_without_a_valid_pixel_the_factor_is_1():
    assert fit_log_scale([batch(np.zeros((1, 1, 2, 2)), np.ones((1, 1, 2, 2)))]) == 0.0
