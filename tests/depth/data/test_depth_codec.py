"""Depth encodings: exact values, rounding, limits, and means that invalid depth never enters."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.depth.data import depth_codec
from zoerefine.depth.data.area_mean import valid_area_mean

NAMED = [depth_codec.HABITATDYN, depth_codec.MILLIMETRES, depth_codec.ZOEDEPTH]
ENCODINGS = [*NAMED, *(depth_codec.DepthEncoding(*of) for of in ((8, 1, 0.02), (16, 1, 5e-4)))]


def test_each_encoding_has_the_metres_of_its_definition():
    values = np.array([0, 1, 128, 254, 255])
    metres = depth_codec.HABITATDYN.to_metres(values.astype(np.uint8))
    np.testing.assert_allclose(metres, [0, 10 / 255, 1280 / 255, 2540 / 255, 0])
    np.testing.assert_allclose(
        depth_codec.MILLIMETRES.to_metres(values.astype(np.uint16)), values / 1000
    )
    np.testing.assert_array_equal(
        depth_codec.ZOEDEPTH.to_metres(values.astype(np.uint16)), values / 256
    )
    assert depth_codec.ZOE_UNIT_M == 1 / 256


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_every_value_survives_decoding_and_encoding(encoding):
    values = np.arange(2**encoding.bits).astype(f"uint{encoding.bits}")
    if encoding.bits == 8:
        values = values[:255]  # 255 is saturated and is read as invalid
    np.testing.assert_array_equal(encoding.encode(encoding.to_metres(values)), values)
    np.testing.assert_allclose(
        encoding.to_u16(values) * encoding.u16_unit_m, encoding.to_metres(values), rtol=1e-12
    )


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_depth_is_rounded_to_the_nearest_value_and_kept_in_range(encoding):
    unit_m = encoding.span_m / encoding.units
    depth_m = np.array([2.4, 2.6, -1, np.nan, np.inf, -np.inf, 1e9], np.float32) * unit_m
    highest = 2**encoding.bits - 1
    np.testing.assert_array_equal(encoding.encode(depth_m), [2, 3, 0, 0, 0, 0, highest])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_depth_of_any_precision_is_encoded(dtype):
    depth_m = np.array([0.5, 1.5, 255.5], dtype)
    np.testing.assert_array_equal(depth_codec.ZOEDEPTH.encode(depth_m), [128, 384, 65408])


def block_means(depth, factor):
    """Means over the valid pixels of blocks in float64, written out."""
    height, width = depth.shape[0] // factor, depth.shape[1] // factor
    means = np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            block = depth[y * factor : (y + 1) * factor, x * factor : (x + 1) * factor]
            valid = block[block > 0].astype(np.float64)
            if len(valid) >= block.size / 2:
                means[y, x] = valid.mean()
    return means


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([2, 3, 4]))
def test_files_and_batches_are_resized_by_the_same_rule(seed, factor):
    rng = np.random.default_rng(seed)
    depth = rng.integers(1, 65536, (6 * factor, 8 * factor)).astype(np.uint16)
    depth[rng.random(depth.shape) < rng.random()] = 0
    expected = block_means(depth, factor)
    packed = depth_codec.resize_depth(depth, 6, 8)
    batch = valid_area_mean(torch.from_numpy(depth[None, None].astype(np.float32)), [6, 8])
    for means, tolerance in ((packed, 0.51), (batch[0, 0].numpy(), 0.01)):
        np.testing.assert_array_equal(means > 0, expected > 0)
        np.testing.assert_allclose(means, expected, atol=tolerance)
