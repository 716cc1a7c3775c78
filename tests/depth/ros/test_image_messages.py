"""Pictures and depth of messages: every encoding, byte order and layout of rows."""

import array
from contextlib import suppress
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'zoerefine[ros]'")

from tests.depth.ros.bags import compressed, image
from zoerefine.base.errors import UserError
from zoerefine.depth.ros import image_messages

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)
STORED = {
    "rgb8": RGB,
    "bgr8": RGB[..., ::-1],
    "rgba8": np.dstack([RGB, RGB[..., :1]]),
    "bgra8": np.dstack([RGB[..., ::-1], RGB[..., :1]]),
}


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize("encoding", STORED)
def test_colours_are_read_exactly_without_the_padding_of_rows(encoding, padding):
    message = image(STORED[encoding], encoding, padding=padding)
    assert image_messages.holds_picture(message) and not image_messages.holds_depth(message)
    assert image_messages.size_of(message) == (8, 6)
    assert np.array_equal(image_messages.rgb_of(message), RGB)


def test_grey_has_three_equal_channels():
    assert np.array_equal(
        image_messages.rgb_of(image(RGB[..., 0], "mono8")), np.dstack([RGB[..., 0]] * 3)
    )


@pytest.mark.parametrize(
    ("encoding", "order"),
    [("yuv422", "uyvy"), ("uyvy", "uyvy"), ("yuv422_yuy2", "yuyv"), ("yuyv", "yuyv")],
)
def test_the_luminance_of_yuv_becomes_grey(encoding, order):
    """Where U and V are 128 there is no colour, and Y goes from 16 (black) to 235 (white)."""
    luminance = np.linspace(16, 235, 8).round().astype(np.uint8)
    row = np.full((8, 2), 128, np.uint8)
    row[:, order.index("y")] = luminance
    rgb = image_messages.rgb_of(image(np.stack([row] * 6), encoding))
    expected = (luminance.astype(float) - 16) / 219 * 255
    assert np.abs(rgb - expected[None, :, None]).max() <= 1.5


def test_every_colour_encoding_has_a_test():
    tested = {*STORED, "mono8", "yuv422", "uyvy", "yuv422_yuy2", "yuyv"}
    assert set(image_messages.COLOR_ENCODINGS) == tested


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("big_endian", [False, True])
def test_depth_of_both_byte_orders_is_rounded_to_256ths(big_endian, padding):
    mm = np.array([[0, 1, 2, 1000], [4321, 65534, 65535, 3]], np.uint16)
    message = image(mm, "16UC1", padding=padding, big_endian=big_endian)
    assert image_messages.holds_depth(message) and not image_messages.holds_picture(message)
    assert np.array_equal(image_messages.depth_of(message), np.rint(mm / 1000 * 256))
    metres = np.array([[np.nan, np.inf, -np.inf, -2], [0, 1.5, 255.998, 1e9]], np.float32)
    message = image(metres, "32FC1", padding=padding, big_endian=big_endian)
    assert image_messages.depth_of(message).tolist() == [[0, 0, 0, 0], [0, 384, 65535, 65535]]


def test_written_depth_is_exact_in_metres_and_rounded_in_millimetres():
    values = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    metres = image_messages.depth_fields(values, "32FC1")
    found = metres["data"].view("<f4").reshape(256, 256)
    assert np.isnan(found[0, 0])
    assert np.array_equal(found.reshape(-1)[1:] * 256, values.reshape(-1)[1:])
    mm = image_messages.depth_fields(values, "16UC1")["data"].view("<u2")
    near = np.arange(2**16) / 256 < 65.5355  # what 16 bits of millimetres hold
    assert np.array_equal(mm, np.where(near, np.rint(np.arange(2**16) / 256 * 1000), 0))


def test_messages_of_rclpy_hold_arrays_of_another_type():
    """In rclpy, data is an array of the standard library."""
    fields = {name: getattr(image(RGB, "rgb8"), name) for name in ("height", "width", "step")}
    data = array.array("B", RGB.tobytes())
    message = SimpleNamespace(encoding="rgb8", is_bigendian=0, data=data, **fields)
    assert np.array_equal(image_messages.rgb_of(message), RGB)
    png = array.array("B", cv2.imencode(".png", RGB[..., ::-1])[1].tobytes())
    assert np.array_equal(image_messages.rgb_of(SimpleNamespace(format="png", data=png)), RGB)


def test_compressed_depth_is_read_with_and_without_the_header_of_its_transport():
    mm = np.array([[0, 500], [1000, 65535]], np.uint16)
    png = cv2.imencode(".png", mm)[1].tobytes()
    for form, data in (
        ("16UC1; compressedDepth png", bytes(12) + png),
        ("16UC1; png compressed", png),
    ):
        message = compressed(data, form)
        assert image_messages.holds_depth(message) and not image_messages.holds_picture(message)
        assert image_messages.size_of(message) == (2, 2)
        assert np.array_equal(image_messages.depth_of(message), np.rint(mm / 1000 * 256))


SIZES = st.integers(0, 12) | st.sampled_from([2**16, 2**31, 2**32 - 1])


@given(
    st.sampled_from([*image_messages.COLOR_ENCODINGS, "16UC1", "32FC1", "8UC1", "", "\x1b[0m"]),
    st.tuples(SIZES, SIZES, SIZES | st.integers(0, 60)),
    st.integers(0, 255),
    st.none() | st.binary(max_size=300),
)
def test_any_fields_give_a_picture_of_the_stated_size_or_one_line(encoding, sizes, order, data):
    height, width, step = sizes
    if data is None:  # as many bytes as the fields state
        data = bytes(min(height * step, 1000))
    message = SimpleNamespace(
        encoding=encoding, height=height, width=width, step=step, is_bigendian=order, data=data
    )
    for read in (image_messages.rgb_of, image_messages.depth_of):
        with suppress(UserError):
            assert read(message).shape[:2] == (height, width)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (image(RGB, "bgr16"), "the encoding 'bgr16'; supported are rgb8, bgr8, rgba8, "),
        (image(RGB, "rgb8", step=23), "a step of 23 bytes, but 8 pixels of rgb8 take 24"),
        (image(RGB, "rgb8", step=25), "144 bytes of data, but 6 rows with a step of 25 bytes are"),
        (image(RGB, "rgb8", height=5), "144 bytes of data, but 5 rows"),
        (image(RGB, "rgb8", width=0), "0x6 pixels"),
        (image(RGB, "rgb8", width=2**20, height=2**20), "1048576x1048576 pixels, more than"),
        (image(RGB[:, :7, :2], "yuyv"), "has an odd width"),
        (compressed(b"no picture", "jpeg"), "is cut short or no JPEG or PNG"),
        (compressed(bytes(20), "16UC1; compressedDepth png"), "the encoding '16UC1; compressed"),
    ],
)
def test_wrong_pictures_are_one_line(message, reason):
    with pytest.raises(UserError, match=reason.replace("(", r"\(")):
        image_messages.rgb_of(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (image(RGB[..., 0], "mono8"), "'mono8'; supported are 16UC1"),
        (image(RGB[..., 0].astype(np.float64), "64FC1"), "'64FC1'; supported are 16UC1"),
        (compressed(bytes(20), "32FC1; compressedDepth png"), "'32FC1; compressedDepth png'"),
        (compressed(bytes(20), "16UC1; compressedDepth rvl"), "'16UC1; compressedDepth rvl'"),
        (compressed(bytes(20), "16UC1; compressedDepth png"), "no JPEG or PNG"),
        (
            compressed(cv2.imencode(".png", RGB[..., 0])[1], "16UC1; png"),
            "values of uint8; 16 bits",
        ),
        (image(RGB[..., 0].astype(np.float32), "32FC1", step=30), "8 pixels of 32FC1 take 32"),
        (image(np.full((5, 8), 1900, np.float32), "32FC1"), "and this seems to be millimetres"),
    ],
)
def test_wrong_depth_is_one_line(message, reason):
    with pytest.raises(UserError, match=reason):
        image_messages.depth_of(message)
