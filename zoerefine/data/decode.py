"""Picture files to arrays, and arrays to another size; every fault names its file.

OpenCV returns grey or old pixels for a file cut short, so the ends of files are checked first.
"""

from pathlib import Path

import cv2
import numpy as np

from zoerefine.data.dataset import Frame
from zoerefine.errors import UserError

JPEG_END = b"\xff\xd9"
PNG_END = b"IEND\xaeB`\x82"
MEASURED_SHARE = 0.5  # of a resized pixel's area, below which it counts as not measured
FROM_8_BITS = (np.arange(256) * 257 * (np.arange(256) < 255)).astype(np.uint16)  # 255: 10 m or more

Array = np.ndarray


def read_rgb(path: Path) -> Array:
    """A colour picture as uint8 [H, W, 3], RGB."""
    return _decode(path, cv2.IMREAD_COLOR_RGB)


def read_depth(path: Path) -> Array:
    """Depth as uint16 [H, W] in its data set's units, 0 = no measurement.

    An 8-bit file is HabitatDyn's: v becomes v * 257, and 255, "10 m or more", becomes 0.
    """
    depth = _one_channel(path, _decode(path, cv2.IMREAD_UNCHANGED))
    if depth.dtype == np.uint16:
        return depth
    return cv2.LUT(depth, FROM_8_BITS)


def read_truth_m(path: Path) -> Array:
    """True depth in metres, float64 [H, W]: of HabitatDyn's 8 bits, or of 16-bit millimetres."""
    depth = _one_channel(path, _decode(path, cv2.IMREAD_UNCHANGED))
    if depth.dtype == np.uint16:
        return depth * 0.001
    return np.where(depth == 255, 0, depth / 255 * 10)


def read_zoe(path: Path) -> Array:
    """Pseudo depth as uint16 [H, W], metres = value / 256."""
    zoe = _one_channel(path, _decode(path, cv2.IMREAD_UNCHANGED))
    if zoe.dtype != np.uint16:
        raise UserError(f"{path} has {zoe.dtype.itemsize * 8} bits; pseudo depth has 16")
    return zoe


def read_objects(path: Path) -> Array:
    """Ids of moving objects as uint8 [H, W], 0 = background."""
    objects = _one_channel(path, _decode(path, cv2.IMREAD_UNCHANGED))
    if objects.dtype != np.uint8:
        raise UserError(f"{path} has {objects.dtype.itemsize * 8} bits; object ids have 8")
    return objects


def read_frame(frame: Frame, height: int, width: int) -> dict[str, Array]:
    """A frame's four fields at one size: rgb [H, W, 3] uint8, zoe and depth uint16 [H, W],
    objects uint8 [H, W] (zeros where the data set has none).

    Raises `UserError` for a damaged file, or fields of different sizes.
    """
    if frame.depth is None or frame.zoe is None:
        lacking = "depth" if frame.depth is None else "pseudo depth"
        hint = "" if frame.zoe else ": data.py zoedepth makes it from the pictures"
        raise UserError(f"frame {frame.name} of clip {frame.clip} has no {lacking}{hint}")
    rgb, depth, zoe = read_rgb(frame.rgb), read_depth(frame.depth), read_zoe(frame.zoe)
    objects = np.zeros_like(depth, np.uint8)
    if frame.objects is not None:
        objects = read_objects(frame.objects)
    for path, field in zip(frame.files[1:], (depth, zoe, objects), strict=False):
        if field.shape != rgb.shape[:2]:
            sizes = f"{field.shape[1]}x{field.shape[0]}, {rgb.shape[1]}x{rgb.shape[0]}"
            raise UserError(f"{path} and {frame.rgb} differ in size: {sizes}")
    return {
        "rgb": resize_rgb(rgb, height, width),
        "zoe": resize_depth(zoe, height, width),
        "depth": resize_depth(depth, height, width),
        "objects": resize_ids(objects, height, width),
    }


def resize_rgb(rgb: Array, height: int, width: int) -> Array:
    """Mean over the area of each new pixel."""
    return cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA)


def resize_depth(depth: Array, height: int, width: int) -> Array:
    """Mean over the *measured* area of each new pixel; 0 where less than half was measured."""
    if depth.shape == (height, width):
        return depth
    # As floats: OpenCV's means of 16-bit integers are cut off, not rounded.
    total = cv2.resize(depth.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA)
    if depth.all():
        return np.rint(total).astype(np.uint16)
    measured = (depth > 0).astype(np.float32)
    share = cv2.resize(measured, (width, height), interpolation=cv2.INTER_AREA)
    kept = share >= MEASURED_SHARE
    return np.where(kept, np.rint(total / np.where(kept, share, 1)), 0).astype(np.uint16)


def resize_ids(ids: Array, height: int, width: int) -> Array:
    """The id at each new pixel's centre: ids cannot be averaged."""
    return cv2.resize(ids, (width, height), interpolation=cv2.INTER_NEAREST_EXACT)


def _decode(path: Path, flags: int) -> Array:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    jpeg = data.startswith(b"\xff\xd8")
    if not data.rstrip(b"\0").endswith(JPEG_END) if jpeg else PNG_END not in data[-64:]:
        raise UserError(f"{path} is cut short or no picture ({len(data)} bytes): copy it again")
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if picture is None:
        raise UserError(f"{path} is a damaged picture: copy it again")
    return picture


def _one_channel(path: Path, picture: Array) -> Array:
    """Some annotation tools wrote three equal channels."""
    if picture.ndim == 2:
        return picture
    if (picture == picture[..., :1]).all():
        return np.ascontiguousarray(picture[..., 0])
    raise UserError(f"{path} is a colour picture; one channel is due")
