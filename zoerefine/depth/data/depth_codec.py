"""Depth in files and in memory: every encoding, its rounding, its limits, and area means.

A depth file holds integers: metres = value * unit. The value 0 marks an invalid pixel, one
without a measurement.

    ZoeDepth's files    16 bits, 256 units a metre
    a frames.csv's      16 bits, millimetres, or the unit that its column `depth_unit_m` states
    HabitatDyn's         8 bits, 255 units for 10 m; 255 means "10 m or more", so it is invalid

In memory and in the packed cache depth is uint16. An 8-bit value v is kept as v * 257 there, so
that the mean over an area is rounded to a step 257 times finer than the file's.
"""

from dataclasses import dataclass

import numpy as np

VALID_SHARE = 0.5  # a resized pixel is valid if at least this share of its area was
SATURATED = 255  # in an 8-bit file: the end of its range, or anything beyond
WIDEN = 257  # 255 * 257 = 65535: 8 bits spread over 16

Array = np.ndarray


@dataclass(frozen=True)
class DepthEncoding:
    """How the integers of a depth file are metres.

    Attributes:
        bits: of a file's values, 8 or 16.
        units, span_m: `units` steps of the values are `span_m` metres.
    """

    bits: int
    units: float
    span_m: float

    @property
    def u16_unit_m(self) -> float:
        """Metres for one unit of the uint16 values in memory."""
        return self.span_m / self.units / (WIDEN if self.bits == 8 else 1)

    def to_u16(self, values: Array) -> Array:
        """A file's values, uint8 or uint16 of any shape, as uint16 in units of `u16_unit_m`."""
        if self.bits == 16:
            return values
        import cv2  # late, here and below: engines use this module without OpenCV

        return cv2.LUT(values, WIDENED)

    def to_metres(self, values: Array) -> Array:
        """A file's values as float64 metres; 0 marks an invalid pixel."""
        valid = values if self.bits == 16 else np.where(values == SATURATED, 0, values)
        return valid / self.units * self.span_m

    def encode(self, depth_m: Array) -> Array:
        """Metres, float of any shape, as a file's values, uint8 or uint16.

        Rounds to the nearest value. What lies beyond the range becomes its end; negative and
        non-finite depth becomes 0.
        """
        # The float32 zero widens half precision, which does not reach 65535.
        finite_m = np.where(np.isfinite(depth_m), depth_m, np.float32(0))
        with np.errstate(over="ignore"):  # infinity is beyond the range, too
            values = np.rint(finite_m / self.span_m * self.units)
        return np.clip(values, 0, 2**self.bits - 1).astype(f"uint{self.bits}")


HABITATDYN = DepthEncoding(8, 255, 10.0)
MILLIMETRES = DepthEncoding(16, 1000, 1.0)
ZOEDEPTH = DepthEncoding(16, 256, 1.0)
SCALE = {"depth-scale": "metres = value / 256"}  # a PNG's text: its values are ZOEDEPTH's
ZOE_UNIT_M = ZOEDEPTH.u16_unit_m  # 1/256 m, a power of two: multiplying by it is exact

_VALUES = np.arange(256)
WIDENED = np.where(_VALUES == SATURATED, 0, _VALUES * WIDEN).astype(np.uint16)


def sixteen_bits(farthest_m: float) -> DepthEncoding:
    """The usual encoding of 16 bits that reaches a depth: millimetres to 65.5 m, else 1/256 m."""
    return MILLIMETRES if (2**16 - 1) * MILLIMETRES.u16_unit_m >= farthest_m else ZOEDEPTH


def resize_depth(depth_u16: Array, height: int, width: int) -> Array:
    """Mean over the *valid* area of each new pixel, uint16 [height, width].

    A new pixel is invalid (0) where less than half of its area was valid.
    """
    if depth_u16.shape == (height, width):
        return depth_u16
    # As floats: OpenCV truncates its means of 16-bit integers.
    mean = _area_mean(depth_u16.astype(np.float32), height, width)
    if depth_u16.all():
        return np.rint(mean).astype(np.uint16)
    share = _area_mean((depth_u16 > 0).astype(np.float32), height, width)
    valid = share >= VALID_SHARE
    return np.where(valid, np.rint(mean / np.where(valid, share, 1)), 0).astype(np.uint16)


def _area_mean(values: Array, height: int, width: int) -> Array:
    import cv2

    return cv2.resize(values, (width, height), interpolation=cv2.INTER_AREA)
