"""A frame's fields from their files: bits that are checked, ids that are never mixed."""

import numpy as np
import pytest
from PIL import Image

from zoerefine.base.errors import UserError
from zoerefine.depth.data.cache import decode
from zoerefine.depth.data.dataset import Frame
from zoerefine.depth.data.depth_codec import HABITATDYN, MILLIMETRES, DepthEncoding


def saved(path, pixels, **options):
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.fixture
def eight(tmp_path):
    return saved(tmp_path / "eight.png", np.array([[0, 1, 254, 255]], np.uint8))


@pytest.fixture
def sixteen(tmp_path):
    return saved(tmp_path / "sixteen.png", np.array([[0, 1, 1500, 65535]], np.uint16))


def test_depth_is_read_in_the_units_of_its_data_set(eight, sixteen):
    np.testing.assert_array_equal(decode.read_depth(eight, HABITATDYN), [[0, 257, 254 * 257, 0]])
    np.testing.assert_array_equal(decode.read_depth(sixteen, MILLIMETRES), [[0, 1, 1500, 65535]])
    np.testing.assert_array_equal(decode.read_zoe(sixteen), [[0, 1, 1500, 65535]])


def test_truth_is_read_in_the_stated_unit_or_in_the_one_its_bits_mean(eight, sixteen):
    np.testing.assert_allclose(decode.read_truth_m(eight), [[0, 10 / 255, 2540 / 255, 0]])
    np.testing.assert_allclose(decode.read_truth_m(sixteen), [[0, 0.001, 1.5, 65.535]])
    np.testing.assert_allclose(
        decode.read_truth_m(eight, DepthEncoding(8, 1, 0.02)), [[0, 0.02, 5.08, 0]]
    )


def test_a_file_of_other_bits_is_named(eight, sixteen):
    with pytest.raises(UserError, match=r"eight\.png has 8 bits; pseudo depth has 16"):
        decode.read_zoe(eight)
    with pytest.raises(UserError, match=r"sixteen\.png has 16 bits; an object id has 8"):
        decode.read_objects(sixteen)
    for read in (decode.read_depth, decode.read_truth_m):
        with pytest.raises(UserError, match=r"eight\.png has 8 bits; .* its data set has 16"):
            read(eight, MILLIMETRES)
        with pytest.raises(UserError, match=r"sixteen\.png has 16 bits; .* its data set has 8"):
            read(sixteen, HABITATDYN)


def test_fields_of_different_sizes_are_named_with_the_orientation_that_may_explain_it(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    rgb = saved(tmp_path / "a.jpg", np.zeros((6, 8, 3), np.uint8), exif=exif)
    depth = saved(tmp_path / "d.png", np.ones((8, 6), np.uint16))
    frame = Frame("k", "a", "k", rgb, depth, depth, None)
    with pytest.raises(UserError, match=r"differ in size: 6x8, 8x6 .*EXIF orientation 6 is not"):
        decode.read_frame(frame, MILLIMETRES, 6, 8)


def test_ids_are_never_mixed():
    ids = np.repeat(np.repeat(np.array([[1, 6], [0, 3]], np.uint8), 10, 0), 10, 1)
    np.testing.assert_array_equal(decode.resize_ids(ids, 2, 2), [[1, 6], [0, 3]])
    assert set(np.unique(decode.resize_ids(ids, 7, 9))) <= {0, 1, 3, 6}
