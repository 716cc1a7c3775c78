"""Real frames for engines: to measure their accuracy on, and to calibrate int8 with."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.dataset import Frame
from zoerefine.data.decode import read_zoe
from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.data.readers import open_dataset
from zoerefine.data.split import read_split
from zoerefine.errors import UserError
from zoerefine.exporting.precision import RefinerInputs
from zoerefine.exporting.shipped_module import PrePostProcessing
from zoerefine.image_files import read_rgb
from zoerefine.points.for_engines import hinted
from zoerefine.points.metric_points import MetricPoints
from zoerefine.progress import track
from zoerefine.run_dir import RunDir

FRAMES = 8  # that an engine is compared on
CALIBRATION_FRAMES = 32  # of training scenes
POINT_EVERY = 60  # pixels between points, in rows and columns


def sample_frames(root: str, points: bool = False) -> tuple[Tensor, Tensor]:
    """Frames from all over the data set: RGB uint8 [N, H, W, 3], pseudo depth uint16 [N, H, W].

    With `points` they are inputs of an engine that takes metric points, and every second one has
    some.
    """
    pictures = [read(frame) for frame in evenly_spaced(frames_with_zoe(root), FRAMES)]
    same_size = [(rgb, zoe) for rgb, zoe in pictures if zoe.shape == pictures[0][1].shape]
    if points:
        same_size = [hinted(*one, some_points(one[1], n % 2)) for n, one in enumerate(same_size)]
    rgb_u8, zoe_u16 = (torch.from_numpy(np.stack(field)) for field in zip(*same_size, strict=True))
    return rgb_u8, zoe_u16


def some_points(zoe_u16: np.ndarray, times: int) -> MetricPoints:
    """Metric points as of a scene that is a quarter farther away; none where `times` is 0."""
    rows, columns = (
        places.ravel() for places in np.indices(zoe_u16.shape)[:, ::POINT_EVERY, ::POINT_EVERY]
    )
    depth_m = 1.25 * times * ZOE_UNIT_M * zoe_u16[rows, columns]
    points = MetricPoints(columns.astype(float), rows.astype(float), depth_m, 0 * depth_m)
    return points.select(depth_m > 0)


def calibration_batches(
    run: RunDir, root: str, height: int, width: int, points: bool = False
) -> Iterator[RefinerInputs]:
    """Frames of the run's training scenes, one at a time, at the network's size.

    `points` as for `sample_frames`.
    """
    train = set(read_split(run.split_file).train)
    in_training = [frame for frame in frames_with_zoe(root) if frame.scene in train]
    frames = evenly_spaced(in_training, CALIBRATION_FRAMES)
    processing = PrePostProcessing(height, width)
    for number, frame in enumerate(track(frames, len(frames), "calibrating", "frame")):
        rgb, zoe = read(frame)
        if points:
            rgb, zoe = hinted(rgb, zoe, some_points(zoe, number % 2))
        yield processing.before(torch.from_numpy(rgb)[None], torch.from_numpy(zoe)[None])


def frames_with_zoe(root: str) -> list[Frame]:
    """The frames that have pseudo depth. Raises `UserError` if there are none."""
    frames = [frame for frame in open_dataset(root).frames if frame.zoe is not None]
    if not frames:
        raise UserError(
            f"no frame in {root} has pseudo depth, and an engine is compared on such frames: make "
            f"it with `zoerefine data pseudo {root}`"
        )
    return frames


def evenly_spaced(frames: list[Frame], count: int) -> list[Frame]:
    """At most `count` of the frames, at equal distances."""
    picked = np.linspace(0, len(frames) - 1, min(count, len(frames)))
    return [frames[i] for i in picked.astype(int)]


def read(frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """RGB uint8 [H, W, 3] and pseudo depth uint16 [H, W]."""
    assert frame.zoe is not None
    return read_rgb(frame.rgb), read_zoe(frame.zoe)
