"""Write simulated points of a data set as CSV files."""

import csv
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.decode import on_grid_of, read_truth_m
from zoerefine.errors import UserError
from zoerefine.image_files import read_rgb, write_bytes
from zoerefine.points.data_points import picture_names
from zoerefine.points.metric_points import NEEDED, OPTIONAL, MetricPoints
from zoerefine.points.simulate import PointSimulation


def write_points(dataset: Dataset, simulation: PointSimulation, folder: Path) -> Iterator[Path]:
    """Write a CSV file of points for every frame with true depth; yields their paths.

    A file has its picture's path below the folder that all pictures have in common. Raises
    `UserError` where there is a file with other points: they may have been measured.
    """
    for frame, name in picture_names(dataset):
        if frame.depth is None:
            continue
        path = folder / f"{name}.csv"
        truth_m, rgb = truth_and_picture(dataset, frame)
        table = csv_text(simulated(simulation, truth_m, rgb, f"{frame.clip}/{frame.name}")).encode()
        if path.exists() and path.read_bytes() != table:
            raise UserError(f"{path} has other points: give another --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, table)
        yield path


def truth_and_picture(dataset: Dataset, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """True depth, metres [H, W], and the picture, uint8 [H, W, 3]."""
    assert frame.depth is not None
    truth_m, rgb = read_truth_m(frame.depth, dataset.depth_encoding), read_rgb(frame.rgb)
    return on_grid_of(rgb, truth_m, frame.depth, frame.rgb), rgb


def simulated(
    simulation: PointSimulation, truth_m: np.ndarray, rgb: np.ndarray, name: str
) -> MetricPoints:
    """The points of one frame, which its name and the simulation's seed decide.

    Args:
        truth_m: [H, W], metres; 0 marks an invalid pixel.
        rgb: uint8 [H, W, 3].
    """
    depth = torch.from_numpy(truth_m.astype(np.float32))[None, None]
    rgb01 = torch.from_numpy(rgb).permute(2, 0, 1)[None] / 255
    number = np.array([zlib.crc32(name.encode())], np.int64)
    found = simulation(depth, rgb01, number)[0].double().numpy()
    return MetricPoints(*found[found[:, 2] > 0].T)


def csv_text(points: MetricPoints) -> str:
    """The points as a CSV table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*NEEDED, OPTIONAL])
    for row in zip(points.x, points.y, points.depth_m, points.sigma_m, strict=True):
        writer.writerow(f"{value:.6g}" for value in row)
    return text.getvalue()
