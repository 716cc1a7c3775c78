"""Pictures and depth in messages: sensor_msgs/Image and sensor_msgs/CompressedImage.

The functions take any object that has the fields of the message, such as those of rclpy and of
rosbags. This file imports neither. Depth in messages follows REP 118: `16UC1` is millimetres with
0 for an invalid pixel, `32FC1` is metres with NaN for an invalid pixel.
"""

from typing import Any

import cv2
import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import check_pixels, decode_rgb, decode_values, stored_size
from zoerefine.depth.data.depth_codec import MILLIMETRES, ZOE_UNIT_M, ZOEDEPTH
from zoerefine.depth.data.depth_unit import FARTHEST_ZOE_M, is_beyond_range

COLOR_ENCODINGS = {  # channels, and OpenCV's conversion to RGB
    "rgb8": (3, None),
    "bgr8": (3, cv2.COLOR_BGR2RGB),
    "rgba8": (4, cv2.COLOR_RGBA2RGB),
    "bgra8": (4, cv2.COLOR_BGRA2RGB),
    "mono8": (1, cv2.COLOR_GRAY2RGB),
    "yuv422": (2, cv2.COLOR_YUV2RGB_UYVY),
    "uyvy": (2, cv2.COLOR_YUV2RGB_UYVY),
    "yuv422_yuy2": (2, cv2.COLOR_YUV2RGB_YUY2),
    "yuyv": (2, cv2.COLOR_YUV2RGB_YUY2),
}
DEPTH_ENCODINGS: dict[str, np.dtype] = {"32FC1": np.dtype("f4"), "16UC1": np.dtype("u2")}
COMPRESSED_DEPTH = "compressedDepth"  # in the format of a message with depth
COMPRESSED_DEPTH_HEADER = 12  # bytes before the PNG of such a message

# From millimetres to metres * 256 and back, for every 16-bit value. Depth that 16 bits of
# millimetres do not hold (65.5 m) is invalid.
_VALUES = np.arange(2**16, dtype=np.uint16)
FROM_MILLIMETRES = ZOEDEPTH.encode(MILLIMETRES.to_metres(_VALUES))
_MILLIMETRES = np.rint(ZOEDEPTH.to_metres(_VALUES) * 1000)
TO_MILLIMETRES = np.where(_MILLIMETRES < 2**16, _MILLIMETRES, 0).astype(np.uint16)

Array = np.ndarray


def stamp_ns(message: Any) -> int:
    """The stamp of a message's header, in nanoseconds."""
    stamp = message.header.stamp
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def encoding_of(message: Any) -> str:
    """The encoding of an Image, the format of a CompressedImage."""
    return str(message.format if is_compressed(message) else message.encoding)


def is_compressed(message: Any) -> bool:
    """Whether a message is a CompressedImage."""
    return hasattr(message, "format")


def holds_depth(message: Any) -> bool:
    """Whether a message holds depth in an encoding that can be read."""
    encoding = encoding_of(message)
    if is_compressed(message):
        return encoding.startswith("16UC1") and "rvl" not in encoding
    return encoding in DEPTH_ENCODINGS


def holds_picture(message: Any) -> bool:
    """Whether a message holds a picture in an encoding that can be read."""
    encoding = encoding_of(message)
    if is_compressed(message):
        return not encoding.startswith(tuple(DEPTH_ENCODINGS))
    return encoding in COLOR_ENCODINGS


def size_of(message: Any) -> tuple[int, int] | None:
    """Width and height, without decoding; None for compressed data without a readable header.

    Raises `UserError` for an Image whose fields contradict each other.
    """
    if is_compressed(message):
        return stored_size(_compressed_bytes(message))
    channels, item = _pixel_of(message)
    check_layout(message, channels * item.itemsize)
    return int(message.width), int(message.height)


def rgb_of(message: Any) -> Array:
    """The picture of a message, uint8 [H, W, 3], RGB.

    Raises `UserError` for an encoding that is not supported, and for fields or data that do not fit
    together.
    """
    encoding = encoding_of(message)
    if not holds_picture(message):
        raise UserError(
            f"a picture has the encoding {encoding!r}; supported are {', '.join(COLOR_ENCODINGS)} "
            "and compressed JPEG and PNG"
        )
    if is_compressed(message):
        return decode_rgb(_compressed_bytes(message), "the compressed picture")
    channels, conversion = COLOR_ENCODINGS[encoding]
    stored = _rows(message, channels, np.dtype("u1"))
    if conversion is None:
        return stored
    if channels == 2 and stored.shape[1] % 2:
        raise UserError(f"a picture of the encoding {encoding!r} has an odd width")
    return cv2.cvtColor(stored, conversion)


def depth_of(message: Any) -> Array:
    """The depth of a message, uint16 [H, W], metres * 256, rounded; 0 is an invalid pixel.

    Zero, negative and non-finite values are invalid pixels. Depth beyond 255.99 m becomes 255.99 m.

    Raises `UserError` for an encoding that is not supported, for fields or data that do not fit
    together, and for metres that must be millimetres.
    """
    if not holds_depth(message):
        raise UserError(
            f"depth has the encoding {encoding_of(message)!r}; supported are 16UC1 (millimetres) "
            "and 32FC1 (metres), and 16UC1 as a compressed PNG"
        )
    if is_compressed(message):
        values = decode_values(_compressed_bytes(message), "the compressed depth")
        if values.dtype != np.uint16:
            raise UserError(f"compressed depth has values of {values.dtype}; 16 bits are expected")
        return FROM_MILLIMETRES[values]
    item = DEPTH_ENCODINGS[message.encoding]
    stored = _rows(message, 1, item)[..., 0]
    if item.kind == "u":
        return FROM_MILLIMETRES[stored]
    if is_beyond_range(stored):
        raise UserError(
            f"nearly all of the depth lies beyond {FARTHEST_ZOE_M:g} m: 32FC1 is metres, and this "
            "seems to be millimetres"
        )
    return ZOEDEPTH.encode(stored)


def depth_fields(depth_u16: Array, encoding: str) -> dict[str, Any]:
    """The fields of an Image with depth, without its header.

    Args:
        depth_u16: uint16 [H, W], metres * 256; 0 is an invalid pixel.
        encoding: `32FC1` keeps every value exactly; `16UC1` rounds to millimetres.
    """
    if encoding == "32FC1":
        values = depth_u16 * np.float32(ZOE_UNIT_M)
        values[depth_u16 == 0] = np.nan
    else:
        values = TO_MILLIMETRES[depth_u16]
    height, width = values.shape
    little_endian = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return {
        "height": height,
        "width": width,
        "encoding": encoding,
        "is_bigendian": 0,
        "step": width * values.itemsize,
        "data": little_endian.reshape(-1).view(np.uint8),
    }


def check_layout(message: Any, pixel_bytes: int) -> None:
    """Raises `UserError` if an Image's size, step and data contradict each other."""
    width, height, step, found = message.width, message.height, message.step, len(message.data)
    if not width or not height:
        raise UserError(f"an image has {width}x{height} pixels")
    check_pixels(width, height, "an image")
    if step < width * pixel_bytes:
        raise UserError(
            f"an image has a step of {step} bytes, but {width} pixels of {message.encoding} take "
            f"{width * pixel_bytes}"
        )
    if found != step * height:
        raise UserError(
            f"an image has {found} bytes of data, but {height} rows with a step of {step} bytes "
            f"are {step * height}"
        )


def _pixel_of(message: Any) -> tuple[int, np.dtype]:
    """Channels and type of an encoding. Raises `UserError` for one that is not supported."""
    if message.encoding in DEPTH_ENCODINGS:
        return 1, DEPTH_ENCODINGS[message.encoding]
    if message.encoding in COLOR_ENCODINGS:
        return COLOR_ENCODINGS[message.encoding][0], np.dtype("u1")
    known = ", ".join([*COLOR_ENCODINGS, *DEPTH_ENCODINGS])
    raise UserError(f"an image has the encoding {message.encoding!r}; supported are {known}")


def _rows(message: Any, channels: int, item: np.dtype) -> Array:
    """An Image's values [H, W, channels], without the padding of rows, in native byte order."""
    check_layout(message, channels * item.itemsize)
    height, width = message.height, message.width
    rows = np.frombuffer(message.data, np.uint8).reshape(height, message.step)
    pixels = np.ascontiguousarray(rows[:, : width * channels * item.itemsize])
    stored = pixels.view(item.newbyteorder(">" if message.is_bigendian else "<"))
    return stored.astype(item, copy=False).reshape(height, width, channels)


def _compressed_bytes(message: Any) -> bytes:
    start = COMPRESSED_DEPTH_HEADER if COMPRESSED_DEPTH in message.format else 0
    return bytes(memoryview(message.data)[start:])
