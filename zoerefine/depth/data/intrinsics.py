"""A camera's intrinsics, and networks that need its focal length.

A module of its own, since networks and data sets both need it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

import numpy as np

from zoerefine.base.errors import UserError, number


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera, in pixels of the picture file; (0, 0) is the centre of the first pixel.

    A point (x, y, z) of the camera's axes (right, down, forward) is seen at column
    fx * x / z + cx and row fy * y / z + cy.
    """

    fx: float
    fy: float
    cx: float
    cy: float

    def of_size(self, height: int, width: int) -> "Intrinsics":
        """The camera itself, of pictures of this size.

        Raises `UserError` where its principal point is outside: then it is of another size.
        """
        if 0 <= self.cx < width and 0 <= self.cy < height:
            return self
        raise UserError(
            f"the camera ({self}) has its principal point outside a picture of {width}x{height}: "
            "give intrinsics in pixels of the pictures as they are"
        )

    def __str__(self) -> str:
        """All digits: files record their camera by this text."""
        return " ".join(f"{k} {str(float(v)).removesuffix('.0')}" for k, v in vars(self).items())


@dataclass(frozen=True)
class Cameras:
    """What is known of the cameras of a source; false where nothing is.

    Attributes:
        one: of all frames; None where they have several.
        own: of each frame by its name, where they have several.
    """

    one: Intrinsics | None = None
    own: Mapping[str, Intrinsics] = field(default_factory=dict)

    def of(self, name: str) -> Intrinsics | None:
        return self.one or self.own.get(name)

    def __bool__(self) -> bool:
        return bool(self.one or self.own)


def checked_intrinsics(values: Sequence[str | float], place: str) -> Intrinsics:
    """fx, fy, cx and cy. Raises `UserError`, naming the place, for values that no camera has."""
    try:
        intrinsics = Intrinsics(*map(number, values))
    except (TypeError, ValueError):  # another count of values, or no numbers
        intrinsics = Intrinsics(math.nan, math.nan, math.nan, math.nan)
    finite = all(map(math.isfinite, astuple(intrinsics)))
    if not (finite and intrinsics.fx > 0 and intrinsics.fy > 0):
        given = " ".join(map(str, values))
        raise UserError(
            f"{place}: intrinsics are four numbers in pixels, fx fy cx cy, fx and fy above 0; "
            f"got {given!r}"
        )
    return intrinsics


@dataclass(frozen=True)
class FocalTerm:
    """metres = output * focal length / constant, the focal length in pixels of the input.

    Attributes:
        height, width: of the network's input.
    """

    constant: float
    height: int
    width: int

    def factor(self, camera: Intrinsics, height: int, width: int) -> np.float32:
        """What outputs are multiplied by, for a camera with pictures of this size."""
        camera = camera.of_size(height, width)
        fx, fy = camera.fx * self.width / width, camera.fy * self.height / height
        return np.float32((fx + fy) / 2 / self.constant)


def needs_intrinsics(name: str) -> UserError:
    """The error for a network with a focal term and a camera without intrinsics."""
    return UserError(
        f"{name} needs the camera's focal length: give --intrinsics FX FY CX CY, or the columns "
        "fx, fy, cx and cy in frames.csv"
    )
