"""Real frames for engines: those to compare on, and those to calibrate 8-bit rounding with."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.dataset import Frame
from zoerefine.data.decode import read_zoe
from zoerefine.data.readers import open_dataset
from zoerefine.data.split import read_split
from zoerefine.errors import UserError
from zoerefine.export.precision import Inputs
from zoerefine.export.shipped_module import PrePostProcessing
from zoerefine.image_files import read_rgb
from zoerefine.progress import track
from zoerefine.run_dir import RunDir

FRAMES = 8  # that an engine is compared on
CALIBRATION = 32  # frames of training scenes


def sample_frames(root: str) -> tuple[Tensor, Tensor]:
    """Real frames from all over the data set: uint8 [N, H, W, 3] and uint16 [N, H, W]."""
    pictures = [read(frame) for frame in spread(with_zoe(root), FRAMES)]
    alike = [(rgb, zoe) for rgb, zoe in pictures if zoe.shape == pictures[0][1].shape]
    rgb_u8, zoe_u16 = (torch.from_numpy(np.stack(field)) for field in zip(*alike, strict=True))
    return rgb_u8, zoe_u16


def calibration_batches(run: RunDir, root: str, height: int, width: int) -> Iterator[Inputs]:
    """Frames of the run's training scenes, one at a time, as the network gets them."""
    train = set(read_split(run.split_file).train)
    frames = spread([frame for frame in with_zoe(root) if frame.scene in train], CALIBRATION)
    ends = PrePostProcessing(height, width)
    for frame in track(frames, len(frames), "calibrating", "frame"):
        rgb, zoe = read(frame)
        yield ends.before(torch.from_numpy(rgb)[None], torch.from_numpy(zoe)[None])


def with_zoe(root: str) -> list[Frame]:
    """The frames that have pseudo depth. Raises `UserError` where there are none."""
    frames = [frame for frame in open_dataset(root).frames if frame.zoe is not None]
    if not frames:
        raise UserError(f"{root} has no frame with pseudo depth to compare an engine on")
    return frames


def spread(frames: list[Frame], count: int) -> list[Frame]:
    """So many of them, from all over."""
    picked = np.linspace(0, len(frames) - 1, min(count, len(frames)))
    return [frames[i] for i in picked.astype(int)]


def read(frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """RGB uint8 [H, W, 3] and pseudo depth uint16 [H, W]."""
    assert frame.zoe is not None
    return read_rgb(frame.rgb), read_zoe(frame.zoe)
