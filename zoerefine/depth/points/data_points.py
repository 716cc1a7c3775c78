"""Metric points of a data set's pictures, from a folder beside it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from zoerefine.depth.data.dataset import Dataset, Frame
from zoerefine.depth.data.metric_points import PointFiles


def with_points(dataset: Dataset, folder: Path) -> Dataset:
    """A data set with the points that a folder has for its pictures.

    A picture's file is folder/PATH.csv or .png, where PATH leads to the picture from the folder
    that all pictures have in common. Raises `UserError` where the folder has points of none.
    """
    files = PointFiles(folder)
    files.check([name for _, name in picture_names(dataset)])
    frames = tuple(
        replace(frame, points=files.path(name)) for frame, name in picture_names(dataset)
    )
    return replace(dataset, frames=frames)


def picture_names(dataset: Dataset) -> Iterator[tuple[Frame, str]]:
    """Each frame, and the path of its picture below the folder of all pictures, without suffix."""
    root = os.path.commonpath([frame.rgb.parent for frame in dataset.frames])
    for frame in dataset.frames:
        yield frame, str(frame.rgb.relative_to(root).with_suffix(""))
