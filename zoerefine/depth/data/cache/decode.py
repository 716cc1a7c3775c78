"""The fields of a frame from its files, at the size that is packed."""

from pathlib import Path

import cv2
import numpy as np

from zoerefine.base.depth_limits import FARTHEST_M
from zoerefine.base.errors import UserError
from zoerefine.base.files.images import UPRIGHT, exif_orientation, png_text, read_rgb, read_values
from zoerefine.depth.data.dataset import Frame
from zoerefine.depth.data.depth_codec import (
    HABITATDYN,
    SCALE,
    ZOEDEPTH,
    DepthEncoding,
    resize_depth,
    sixteen_bits,
)
from zoerefine.depth.data.metric_points import read_point_rows

ASPECT_TOLERANCE = 0.02  # 1296x968 and 640x480 differ by 0.004

Array = np.ndarray


def read_depth(path: Path, encoding: DepthEncoding) -> Array:
    """Depth as uint16 [H, W] in units of `encoding.u16_unit_m`; 0 marks an invalid pixel.

    Raises `UserError` for a damaged file, or one of another number of bits.
    """
    return encoding.to_u16(_depth_values(path, encoding))


def read_truth_m(
    path: Path, encoding: DepthEncoding | None = None, farthest_m: float = FARTHEST_M
) -> Array:
    """True depth, float64 [H, W], metres; 0 marks an invalid pixel.

    Args:
        encoding: of the file. None: what its text states, else HabitatDyn's of 8 bits, and of 16
            the one that reaches `farthest_m`.
    """
    if encoding is not None:
        return encoding.to_metres(_depth_values(path, encoding))
    values = read_values(path)
    if values.dtype == np.uint8:
        return HABITATDYN.to_metres(values)
    is_stated = SCALE.items() <= png_text(path).items()
    return (ZOEDEPTH if is_stated else sixteen_bits(farthest_m)).to_metres(values)


def read_zoe(path: Path) -> Array:
    """Pseudo depth as uint16 [H, W] in units of `ZOE_UNIT_M`; 0 marks an invalid pixel."""
    values = read_values(path)
    if values.dtype != np.uint16:
        raise UserError(_wrong_bits(path, values, "pseudo depth", 16))
    return values


def read_objects(path: Path) -> Array:
    """Ids of moving objects as uint8 [H, W]; 0 is the background."""
    values = read_values(path)
    if values.dtype != np.uint8:
        raise UserError(_wrong_bits(path, values, "an object id", 8))
    return values


def read_frame(frame: Frame, encoding: DepthEncoding, height: int, width: int) -> dict[str, Array]:
    """A frame's fields at one size: rgb [H, W, 3] uint8, zoe and depth uint16 [H, W], objects
    uint8 [H, W] (zeros where the data set has none), points float32 [MAX_POINTS, 4].

    Where the frame allows other sizes, depth and pseudo depth are first brought to the picture's
    size by nearest neighbour. Raises `UserError` for a missing or damaged file, or fields of
    different sizes.
    """
    if frame.depth is None or frame.zoe is None:
        missing = "depth" if frame.depth is None else "pseudo depth"
        hint = "" if frame.zoe else ": zoerefine data pseudo makes it from the pictures"
        raise UserError(f"frame {frame.name} of clip {frame.clip} has no {missing}{hint}")
    rgb, zoe = read_rgb(frame.rgb), read_zoe(frame.zoe)
    depth = read_depth(frame.depth, encoding)
    if frame.sizes_may_differ:
        depth = on_grid_of(rgb, depth, frame.depth, frame.rgb)
        zoe = on_grid_of(rgb, zoe, frame.zoe, frame.rgb)
    objects = np.zeros_like(depth, np.uint8)
    if frame.objects is not None:
        objects = read_objects(frame.objects)
    for path, field in zip(
        (frame.depth, frame.zoe, frame.objects), (depth, zoe, objects), strict=True
    ):
        if path is None:
            continue
        if field.shape != rgb.shape[:2]:
            raise UserError(_different_sizes(path, field, frame.rgb, rgb))
    return {
        "rgb": resize_rgb(rgb, height, width),
        "zoe": resize_depth(zoe, height, width),
        "depth": resize_depth(depth, height, width),
        "objects": resize_ids(objects, height, width),
        "points": read_point_rows(frame.points, rgb.shape[:2], (height, width)),
    }


def resize_rgb(rgb: Array, height: int, width: int) -> Array:
    """Mean over the area of each new pixel."""
    return cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA)


def resize_ids(ids: Array, height: int, width: int) -> Array:
    """The id at each new pixel's centre: ids cannot be averaged."""
    return _nearest(ids, height, width)


def _nearest(values: Array, height: int, width: int) -> Array:
    return cv2.resize(values, (width, height), interpolation=cv2.INTER_NEAREST_EXACT)


def on_grid_of(rgb: Array, depth: Array, path: Path, rgb_path: Path) -> Array:
    """Depth of the picture's field of view, on the picture's pixel grid, by nearest neighbour."""
    (height, width), (rows, columns) = rgb.shape[:2], depth.shape
    if abs(width * rows / (height * columns) - 1) > ASPECT_TOLERANCE:
        raise UserError(_different_sizes(path, depth, rgb_path, rgb))
    return _nearest(depth, height, width)


def _depth_values(path: Path, encoding: DepthEncoding) -> Array:
    values = read_values(path)
    if values.dtype.itemsize * 8 != encoding.bits:
        raise UserError(_wrong_bits(path, values, "depth of its data set", encoding.bits))
    return values


def _wrong_bits(path: Path, values: Array, what: str, bits: int) -> str:
    return f"{path} has {values.dtype.itemsize * 8} bits; {what} has {bits}"


def _different_sizes(path: Path, field: Array, rgb_path: Path, rgb: Array) -> str:
    sizes = f"{field.shape[1]}x{field.shape[0]}, {rgb.shape[1]}x{rgb.shape[0]}"
    turned = exif_orientation(rgb_path)
    hint = "" if turned == UPRIGHT else f" (as stored: EXIF orientation {turned} is not applied)"
    return f"{path} and {rgb_path} differ in size: {sizes}{hint}"
