"""Real frames for engines: to measure their accuracy on, and to calibrate int8 with."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.dataset import Frame
from zoerefine.data.decode import read_zoe
from zoerefine.data.readers import open_dataset
from zoerefine.data.split import read_split
from zoerefine.errors import UserError
from zoerefine.exporting.precision import RefinerInputs
from zoerefine.exporting.shipped_module import PrePostProcessing
from zoerefine.image_files import read_rgb
from zoerefine.progress import track
from zoerefine.run_dir import RunDir

FRAMES = 8  # that an engine is compared on
CALIBRATION_FRAMES = 32  # of training scenes


def sample_frames(root: str) -> tuple[Tensor, Tensor]:
    """Frames from all over the data set: RGB uint8 [N, H, W, 3], pseudo depth uint16 [N, H, W]."""
    pictures = [read(frame) for frame in evenly_spaced(frames_with_zoe(root), FRAMES)]
    same_size = [(rgb, zoe) for rgb, zoe in pictures if zoe.shape == pictures[0][1].shape]
    rgb_u8, zoe_u16 = (torch.from_numpy(np.stack(field)) for field in zip(*same_size, strict=True))
    return rgb_u8, zoe_u16


def calibration_batches(run: RunDir, root: str, height: int, width: int) -> Iterator[RefinerInputs]:
    """Frames of the run's training scenes, one at a time, at the network's size."""
    train = set(read_split(run.split_file).train)
    in_training = [frame for frame in frames_with_zoe(root) if frame.scene in train]
    frames = evenly_spaced(in_training, CALIBRATION_FRAMES)
    processing = PrePostProcessing(height, width)
    for frame in track(frames, len(frames), "calibrating", "frame"):
        rgb, zoe = read(frame)
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
