"""Decoding and resizing: exact values, invalid depth that does not bleed, damage that is named."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoerefine.data.decode import (
    read_depth,
    read_objects,
    read_rgb,
    read_truth_m,
    read_zoe,
    resize_depth,
    resize_ids,
)
from zoerefine.errors import UserError


def picture(path, array):
    cv2.imwrite(str(path), array)
    return path


def test_16_bit_values_are_exact(tmp_path):
    values = np.random.default_rng(0).integers(0, 65536, (20, 30)).astype(np.uint16)
    path = picture(tmp_path / "depth.png", values)
    np.testing.assert_array_equal(read_zoe(path), values)
    np.testing.assert_array_equal(read_depth(path), values)
    np.testing.assert_allclose(read_truth_m(path), values / 1000)


def test_8_bit_depth_may_have_three_equal_channels_and_255_is_unknown(tmp_path):
    values = np.array([[0, 1, 128, 254, 255]], np.uint8)
    one = picture(tmp_path / "one.png", values)
    three = picture(tmp_path / "three.png", np.repeat(values[..., None], 3, 2))
    expected = np.array([[0, 257, 128 * 257, 254 * 257, 0]])
    np.testing.assert_array_equal(read_depth(one), expected)
    np.testing.assert_array_equal(read_depth(three), expected)
    np.testing.assert_allclose(read_truth_m(one), expected * 10 / 65535)


def test_rgb_is_red_first(tmp_path):
    bgr = np.zeros((8, 8, 3), np.uint8)
    bgr[..., 2] = 200
    rgb = read_rgb(picture(tmp_path / "red.png", bgr))
    assert (rgb == [200, 0, 0]).all()


def spoil(path, how):
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("no picture")
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "absent":
        path.unlink()


@pytest.mark.parametrize("how", ["cut", "empty", "text", "folder", "absent"])
@pytest.mark.parametrize(("name", "read"), [("a.jpg", read_rgb), ("a.png", read_zoe)])
def test_damage_is_named(tmp_path, name, read, how):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64)).astype(np.uint16)
    path = picture(tmp_path / name, noise if name == "a.png" else noise.astype(np.uint8))
    spoil(path, how)
    with pytest.raises(UserError, match=name):
        read(path)


def test_the_wrong_kind_of_picture_is_named(tmp_path):
    eight = picture(tmp_path / "eight.png", np.zeros((4, 4), np.uint8))
    sixteen = picture(tmp_path / "sixteen.png", np.zeros((4, 4), np.uint16))
    color = np.zeros((4, 4, 3), np.uint8)
    color[..., 0] = 9
    with pytest.raises(UserError, match=r"eight\.png has 8 bits; pseudo depth has 16"):
        read_zoe(eight)
    with pytest.raises(UserError, match=r"sixteen\.png has 16 bits"):
        read_objects(sixteen)
    with pytest.raises(UserError, match=r"color\.png is a colour picture"):
        read_depth(picture(tmp_path / "color.png", color))


def reference(depth, factor):
    """Area mean over measured pixels in float64, block by block."""
    height, width = depth.shape[0] // factor, depth.shape[1] // factor
    out = np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            block = depth[y * factor : (y + 1) * factor, x * factor : (x + 1) * factor]
            measured = block[block > 0].astype(np.float64)
            if len(measured) >= block.size / 2:
                out[y, x] = measured.mean()
    return out


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([2, 3, 4]))
def test_resized_depth_equals_the_reference_and_nothing_bleeds(seed, factor):
    rng = np.random.default_rng(seed)
    depth = rng.integers(1, 65536, (6 * factor, 8 * factor)).astype(np.uint16)
    depth[rng.random(depth.shape) < rng.random()] = 0
    ours, theirs = resize_depth(depth, 6, 8), reference(depth, factor)
    np.testing.assert_array_equal(ours > 0, theirs > 0)
    assert np.abs(ours - theirs).max() <= 0.51


def test_ids_are_never_mixed():
    ids = np.repeat(np.repeat(np.array([[1, 6], [0, 3]], np.uint8), 10, 0), 10, 1)
    np.testing.assert_array_equal(resize_ids(ids, 2, 2), [[1, 6], [0, 3]])
    assert set(np.unique(resize_ids(ids, 7, 9))) <= {0, 1, 3, 6}
