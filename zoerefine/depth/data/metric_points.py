"""Metric points of a picture, from a file: a CSV table, or a low-resolution depth PNG.

A CSV file has the columns x, y, metres and, if it is known, sigma. x and y are pixels of the
picture, with whole numbers at the pixels' centres; sigma is the standard deviation in metres, and 0
for a point that corrected depth keeps.

A PNG file has 16 bits, millimetres, and 0 where nothing was measured. It covers the whole picture:
each of its pixels is the mean depth of a zone, as a time-of-flight sensor of 8x8 zones measures it.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import check_pairs
from zoerefine.depth.data.dataset import Dataset, Frame, evenly_spaced
from zoerefine.depth.data.depth_codec import MILLIMETRES
from zoerefine.depth.data.layouts.csv_table import CsvTable, Row, number_of

NEEDED, OPTIONAL = ("x", "y", "metres"), "sigma"
SUFFIXES = ".csv", ".png"
FARTHEST_POINT_M = 1000.0
MAX_POINTS = 400  # of a picture that are used: the effort grows with the third power


@dataclass(frozen=True)
class MetricPoints:
    """Depth measured at some pixels of a picture; float64 [N] each, made from any sequences.

    Attributes:
        x, y: pixels of the picture; whole numbers are the pixels' centres.
        depth_m: metres along the camera's axis, above 0.
        sigma_m: standard deviation of `depth_m`, metres. 0: exact, corrected depth has `depth_m` at
            this pixel. NaN or masked: not known.
    """

    x: np.ndarray
    y: np.ndarray
    depth_m: np.ndarray
    sigma_m: np.ndarray

    def __post_init__(self) -> None:
        for name in ("x", "y", "depth_m", "sigma_m"):
            values = getattr(self, name)
            if isinstance(values, np.ma.MaskedArray):  # NaN: `usable` leaves the point out
                values = np.ma.filled(np.ma.asarray(values, np.float64), np.nan)
            try:
                object.__setattr__(self, name, np.asarray(values, np.float64))
            except (TypeError, ValueError) as error:
                raise UserError(
                    f"{name} of points: {error}; give four sequences of numbers"
                ) from None
        shapes = [one.shape for one in (self.x, self.y, self.depth_m, self.sigma_m)]
        if self.x.ndim != 1 or len(set(shapes)) > 1:
            raise UserError(
                f"x, y, depth_m and sigma_m of points have the shapes {shapes}: give four "
                "sequences of one length"
            )

    def __len__(self) -> int:
        return len(self.x)

    def usable(
        self, height: int, width: int, farthest_m: float = FARTHEST_POINT_M
    ) -> "MetricPoints":
        """Those inside a picture of this size, with finite values and a depth that files may have.

        The others are left out without a word: a program may give what a sensor says of nothing.
        Raises `UserError` where one that is left has a negative sigma.
        """
        values = np.stack([self.x, self.y, self.depth_m, self.known_sigma_m()])
        inside = (self.x >= -0.5) & (self.x < width - 0.5)
        inside &= (self.y >= -0.5) & (self.y < height - 0.5)
        near = (self.depth_m > 0) & (self.depth_m <= farthest_m)
        found = self.select(inside & np.isfinite(values).all(0) & near)
        if (found.sigma_m < 0).any():
            raise UserError(
                f"sigma_m of points must not be negative, got {found.sigma_m.min():g}: NaN says "
                "that it is not known"
            )
        return found

    def known_sigma_m(self) -> np.ndarray:
        """`sigma_m`, and 0 where it is not known."""
        return np.where(np.isnan(self.sigma_m), 0.0, self.sigma_m)

    def pixels(self, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the pixels in a picture of this size that hold them."""
        rows = np.clip(np.rint(self.y).astype(int), 0, height - 1)
        return rows, np.clip(np.rint(self.x).astype(int), 0, width - 1)

    def select(self, chosen: np.ndarray) -> "MetricPoints":
        """The points of a mask or an index."""
        return MetricPoints(
            self.x[chosen], self.y[chosen], self.depth_m[chosen], self.sigma_m[chosen]
        )


FEWEST_SHARES = 3  # points of which all in the corner pixels cannot be meant
MOST_SHARE = 1.1  # landmarks may lie beside the picture
NO_POINTS = MetricPoints(*(np.empty(0) for _ in range(4)))


@dataclass(frozen=True)
class PointFiles:
    """A folder with the points of pictures: NAME.csv or NAME.png for the picture NAME."""

    folder: Path

    def path(self, name: str) -> Path | None:
        """The file of a picture; None without one. Raises `UserError` where there are two."""
        found = [self.folder / f"{name}{suffix}" for suffix in SUFFIXES]
        found = [path for path in found if path.is_file()]
        if len(found) > 1:
            raise UserError(f"{found[0]} and {found[1]} are points of one picture: remove one")
        return found[0] if found else None

    def read(self, name: str, height: int, width: int) -> MetricPoints:
        """A picture's points; none without a file. Raises `UserError` for a damaged file."""
        path = self.path(name)
        return read_points(path, height, width) if path else NO_POINTS


def with_points(dataset: Dataset, folder: Path) -> Dataset:
    """A data set with the points that a folder has for its pictures.

    A picture's file is folder/PATH.csv or .png, where PATH leads to the picture from the folder
    that all pictures have in common. Raises `UserError` where the folder has points of none, lacks
    those of a frame that the data set has points of, or holds the depth of the data set.
    """
    files = PointFiles(folder)
    check_pairs(folder, [name for _, name in picture_names(dataset)], "points", SUFFIXES)
    frames = tuple(
        replace(frame, points=files.path(name)) for frame, name in picture_names(dataset)
    )
    for old, frame in zip(dataset.frames, frames, strict=True):
        if old.points and not frame.points:
            raise UserError(
                f"{folder} has no points for {frame.rgb}, and {dataset.root} names {old.points}: "
                "give all points by DATA.POINTS, or leave it out"
            )
        refuse_depth_as_points(frame, f"{folder}: ")
    return replace(dataset, frames=frames)


def refuse_depth_as_points(frame: Frame, where: str) -> None:
    """Raises `UserError` where one file is a frame's points and its depth."""
    for what, path in (("true depth", frame.depth), ("pseudo depth", frame.zoe)):
        if path and frame.points and path.exists() and frame.points.samefile(path):
            raise UserError(
                f"{where}{path} is the points of a picture and its {what}: points are of another "
                "sensor"
            )


def picture_names(dataset: Dataset) -> Iterator[tuple[Frame, str]]:
    """Each frame, and the path of its picture below the folder of all pictures, without suffix."""
    root = os.path.commonpath([frame.rgb.parent for frame in dataset.frames])
    for frame in dataset.frames:
        yield frame, str(frame.rgb.relative_to(root).with_suffix(""))


def read_points(path: Path, height: int, width: int) -> MetricPoints:
    """The points in a file, for a picture of this size.

    Raises `UserError`, with the line, for what is no point of the picture.
    """
    if path.suffix == ".png":
        from zoerefine.base.files.images import read_values  # engines need no OpenCV

        return zones(read_values(path), path, height, width)
    lines = CsvTable(path, NEEDED, [OPTIONAL])
    rows = [point(row, f"{path} line {line}", height, width) for line, row in lines]
    found = MetricPoints(*np.array(rows, np.float64).reshape(-1, 4).T)
    refuse_shares(found.x, found.y, str(path))
    return found


def refuse_shares(x: ArrayLike, y: ArrayLike, what: str) -> None:
    """Raises `UserError` for places inside a picture that are shares of its width and height: three
    or more, all at most about 1, and not all whole pixels."""
    places = np.array([x, y])
    is_share = places.shape[1] >= FEWEST_SHARES and (places <= MOST_SHARE).all()
    if is_share and (places != np.rint(places)).any():
        raise UserError(
            f"{what}: every x and y is at most 1, and they are pixels: multiply shares by the "
            "picture's width and height"
        )


def read_point_rows(
    path: Path | None, size: tuple[int, int], new_size: tuple[int, int]
) -> np.ndarray:
    """The points in a file as a table of a fixed size, float32 [MAX_POINTS, 4].

    A row is x, y, metres and sigma, on the pixel grid of `new_size`; rows of zeros fill it up. Of
    more points every k-th is used, in the order of rows of the picture; equal points are one.

    Args:
        size, new_size: height and width of the picture, and of what it is resized to.
    """
    rows = np.zeros((MAX_POINTS, 4), np.float32)
    if path is None:
        return rows
    points = thinned(read_points(path, *size))
    scale_y, scale_x = (new / old for new, old in zip(new_size, size, strict=True))
    x, y = (points.x + 0.5) * scale_x - 0.5, (points.y + 0.5) * scale_y - 0.5
    rows[: len(points)] = np.stack([x, y, points.depth_m, points.known_sigma_m()], 1)
    return rows


def thinned(points: MetricPoints) -> MetricPoints:
    """At most MAX_POINTS of different points: every k-th, in the order of rows of the picture."""
    points = different(points)
    if len(points) <= MAX_POINTS:
        return points
    in_order = np.lexsort((np.rint(points.x), np.rint(points.y)))
    return points.select(np.array(evenly_spaced(in_order.tolist(), MAX_POINTS)))


def different(points: MetricPoints) -> MetricPoints:
    """Equal points once: an outlier that comes twice would agree with itself."""
    values = np.stack([points.x, points.y, points.depth_m, points.known_sigma_m()])
    order = np.lexsort(values)
    is_new = (np.diff(values[:, order], prepend=np.nan) != 0).any(0)
    return points.select(np.sort(order[is_new]))


def zones(values: np.ndarray, path: Path, height: int, width: int) -> MetricPoints:
    """The points of a low-resolution depth picture, at the centres of its zones."""
    rows, columns = values.shape
    if values.dtype != np.uint16:
        raise UserError(f"{path} has 8 bits: points are a PNG of 16 bits, in millimetres")
    if rows > height or columns > width:
        raise UserError(
            f"{path} has {columns}x{rows} zones, the picture {width}x{height} pixels: "
            "a zone is at least one pixel"
        )
    y, x = np.nonzero(values)
    depth_m = MILLIMETRES.to_metres(values[y, x])
    return MetricPoints(
        (x + 0.5) * width / columns - 0.5, (y + 0.5) * height / rows - 0.5,
        depth_m, np.full(len(x), np.nan),
    )  # fmt: skip


def point(row: Row, where: str, height: int, width: int) -> tuple[float, ...]:
    """x, y, metres and sigma of a line. Raises `UserError` for what is no point of the picture."""
    x, y, depth_m = (number_of(row, name, where) for name in NEEDED)
    sigma_m = number_of(row, OPTIONAL, where) if row.get(OPTIONAL) else math.nan
    refuse_outside(x, y, height, width, where)
    if not 0 < depth_m <= FARTHEST_POINT_M:
        raise UserError(
            f"{where}: metres must be above 0 and at most {FARTHEST_POINT_M:g}, got {depth_m:g}"
        )
    if sigma_m < 0 or sigma_m > FARTHEST_POINT_M:
        raise UserError(
            f"{where}: sigma must be from 0 to {FARTHEST_POINT_M:g} metres, got {sigma_m:g}"
        )
    return x, y, depth_m, sigma_m


def refuse_outside(x: float, y: float, height: int, width: int, where: str) -> None:
    """Raises `UserError` for a place that is outside a picture of this size."""
    if not (-0.5 <= x < width - 0.5 and -0.5 <= y < height - 0.5):
        swapped = -0.5 <= y < width - 0.5 and -0.5 <= x < height - 0.5
        raise UserError(
            f"{where}: x {x:g}, y {y:g} is outside the picture of {width}x{height}"
            + ("; x and y seem to be swapped" if swapped else "")
        )
