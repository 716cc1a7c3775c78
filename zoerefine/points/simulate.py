"""Simulated metric points of frames whose true depth is known, as sensors would give them."""

import csv
import io
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.decode import read_truth_m
from zoerefine.data.depth_codec import resize_depth
from zoerefine.depth_limits import FARTHEST_M, NEAREST_M
from zoerefine.errors import UserError
from zoerefine.image_files import read_rgb, write_bytes
from zoerefine.points.metric_points import NEEDED, MetricPoints

ZONES = 8  # rows and columns of a time-of-flight sensor's zones
CORNER_QUALITY, CORNER_DISTANCE = 0.01, 4  # of cv2.goodFeaturesToTrack; pixels
OUTLIER_M = 0.3, 8.0  # an outlier's depth is uniform in this range

Array = np.ndarray
# From true depth (metres, 0 is invalid), RGB, a count and a generator to rows, columns and metres.
Kind = Callable[[Array, Array, int, np.random.Generator], tuple[Array, Array, Array]]


@dataclass(frozen=True)
class PointSimulation:
    """Which points are simulated.

    Attributes:
        kind: a name of `KINDS`.
        count: points of a picture, at most; zones have 64.
        noise: standard deviation of a point's depth, as a share of it.
        outliers: probability that a point's depth is arbitrary.
    """

    kind: str = "random"
    count: int = 50
    noise: float = 0.03
    outliers: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"no points of kind {self.kind!r}; known: {', '.join(KINDS)}")
        if not 0 <= self.noise <= 1 or not 0 <= self.outliers <= 1:
            raise UserError("noise and outliers of points are shares, 0 to 1")

    def points(self, truth_m: Array, rgb: Array, name: str) -> MetricPoints:
        """The points of a frame. The same frame's name and seed give the same points.

        Args:
            truth_m: [H, W], metres; 0 marks an invalid pixel.
            rgb: uint8 [H, W, 3].
        """
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        valid_m = np.where((truth_m > NEAREST_M) & (truth_m < FARTHEST_M), truth_m, 0)
        y, x, depth_m = KINDS[self.kind](valid_m, rgb, self.count, rng)
        depth_m = depth_m * np.maximum(1 + self.noise * rng.standard_normal(len(depth_m)), 0.1)
        wrong = rng.random(len(depth_m)) < self.outliers
        depth_m = np.where(wrong, rng.uniform(*OUTLIER_M, len(depth_m)), depth_m)
        return MetricPoints(x.astype(float), y.astype(float), depth_m, self.noise * depth_m)


def at_pixels(valid_m: Array, rows: Array, columns: Array) -> tuple[Array, Array, Array]:
    """The points at those of these pixels that have a true depth."""
    measured = valid_m[rows, columns] > 0
    rows, columns = rows[measured], columns[measured]
    return rows, columns, valid_m[rows, columns]


def random(
    valid_m: Array, rgb: Array, count: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Pixels with a true depth, each as likely as any other."""
    rows, columns = np.nonzero(valid_m)
    chosen = rng.choice(len(rows), min(count, len(rows)), replace=False)
    return at_pixels(valid_m, rows[chosen], columns[chosen])


def corners(
    valid_m: Array, rgb: Array, count: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Corners of the picture (Shi and Tomasi), as SLAM and visual odometry track them."""
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    measured = (valid_m > 0).astype(np.uint8)
    found = cv2.goodFeaturesToTrack(grey, count, CORNER_QUALITY, CORNER_DISTANCE, mask=measured)
    columns, rows = (np.zeros((2, 0)) if found is None else found[:, 0].T).astype(int)
    return at_pixels(valid_m, rows, columns)


def zones(
    valid_m: Array, rgb: Array, count: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Means over 8x8 zones, as a time-of-flight sensor measures them, at the zones' centres."""
    height, width = valid_m.shape
    millimetres = np.rint(valid_m * 1000).astype(np.uint16)
    mean_m = resize_depth(millimetres, ZONES, ZONES) / 1000
    rows, columns = np.nonzero(mean_m)
    y, x = (rows + 0.5) * height / ZONES - 0.5, (columns + 0.5) * width / ZONES - 0.5
    return y, x, mean_m[rows, columns]


def beam(
    valid_m: Array, rgb: Array, count: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """The middle row, as a LiDAR of one beam measures it, at equal distances."""
    height, width = valid_m.shape
    columns = np.unique(np.linspace(0, width - 1, count).round().astype(int))
    return at_pixels(valid_m, np.full(len(columns), height // 2), columns)


KINDS: dict[str, Kind] = {"random": random, "corners": corners, "zones": zones, "beam": beam}


def write_points(dataset: Dataset, simulation: PointSimulation, folder: Path) -> Iterator[Path]:
    """Write a CSV file of points for every frame with true depth; yields their paths.

    A file has its picture's path below the folder that all pictures have in common. Raises
    `UserError` where there is a file with other points: they may have been measured.
    """
    root = os.path.commonpath([frame.rgb.parent for frame in dataset.frames])
    for frame in dataset.frames:
        if frame.depth is None:
            continue
        path = (folder / frame.rgb.relative_to(root)).with_suffix(".csv")
        points = simulation.points(*truth_and_picture(dataset, frame), f"{frame.clip}/{frame.name}")
        table = csv_text(points).encode()
        if path.exists() and path.read_bytes() != table:
            raise UserError(f"{path} has other points: give another --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, table)
        yield path


def truth_and_picture(dataset: Dataset, frame: Frame) -> tuple[Array, Array]:
    """True depth, metres [H, W], and the picture, uint8 [H, W, 3]."""
    assert frame.depth is not None
    truth_m, rgb = read_truth_m(frame.depth, dataset.depth_encoding), read_rgb(frame.rgb)
    if truth_m.shape != rgb.shape[:2]:
        truth_m = cv2.resize(truth_m, rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST_EXACT)
    return truth_m, rgb


def csv_text(points: MetricPoints) -> str:
    """The points as a CSV table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*NEEDED, "sigma"])
    for row in zip(points.x, points.y, points.depth_m, points.sigma_m, strict=True):
        writer.writerow(f"{value:.6g}" for value in row)
    return text.getvalue()
