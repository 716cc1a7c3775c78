"""What an engine is built from: a refiner, its size, and frames to calibrate with."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoerefine.base.errors import UserError
from zoerefine.base.progress import track
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.dataset import Dataset, Frame, evenly_spaced
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.metric_points import MetricPoints
from zoerefine.depth.data.split import read_split
from zoerefine.depth.exporting.precision import RefinerInputs, to_precision
from zoerefine.depth.exporting.shipped_module import PrePostProcessing, ShippedModule, core_of
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.points import channels_of
from zoerefine.depth.points.for_engines import hinted


@dataclass(frozen=True)
class ExportSource:
    """What an engine is built from.

    Attributes:
        refiner: float32, on the CPU, in evaluation mode.
        height, width: the size that the refiner was trained at.
        calibration: yields batches of training frames at that size.
        kept: what an engine of one precision made and that of another needs, by its name.
    """

    refiner: RefinerNetwork
    height: int
    width: int
    calibration: Callable[[], Iterator[RefinerInputs]]
    kept: dict[str, Any] = field(default_factory=dict, compare=False)

    def example(self, batch: int) -> RefinerInputs:
        """A random batch of plausible inputs on the CPU: [B, channels, h, w] and [B, 1, h, w]."""
        size = self.height, self.width
        return torch.rand(batch, self.channels, *size), torch.rand(batch, 1, *size) + 1

    @property
    def channels(self) -> int:
        """Of a picture: RGB, and what metric points say if the refiner takes them."""
        return channels_of(self.refiner.takes_points)

    def core(self, precision: str) -> nn.Module:
        """What engines are built from: the refiner in `precision`, for this size only.

        It is a core of `ShippedModule`. Its graph names no device, so a bundle can be loaded on
        another one.
        """
        refiner = to_precision(self.refiner, precision, self.calibration)
        refiner.fix_size(self.height, self.width)
        return core_of(refiner)

    def program(self, core: nn.Module, **bounds: int) -> torch.export.ExportedProgram:
        """A core of this source as a graph with a dynamic batch, on the core's device.

        The batch has no bounds, or those of `torch.export.Dim`: min and max.
        """
        device = next(core.parameters()).device
        # torch.export would take a batch of 1 for a constant.
        example = tuple(tensor.to(device) for tensor in self.example(2))
        batch = torch.export.Dim("batch", **bounds)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.export's, about functions of its own
            return torch.export.export(core, example, dynamic_shapes=({0: batch}, {0: batch}))

    def shipped(self, core: nn.Module) -> ShippedModule:
        """A core with its pre- and post-processing."""
        return ShippedModule(core, self.height, self.width, self.has_confidence)

    @property
    def has_confidence(self) -> bool:
        """Whether engines have the second output."""
        return self.refiner.has_confidence

    @property
    def parameters(self) -> int:
        return sum(tensor.numel() for tensor in self.refiner.parameters())


FRAMES = 8  # that an engine is compared on
CALIBRATION_FRAMES = 32  # of training scenes
POINT_EVERY = 60  # pixels between points, in rows and columns


def sample_frames(dataset: Dataset, points: bool = False) -> tuple[Tensor, Tensor]:
    """Frames from all over the data set: RGB uint8 [N, H, W, 3], pseudo depth uint16 [N, H, W].

    With `points` they are inputs of an engine that takes metric points, and every second one has
    some.
    """
    pictures = [read(frame) for frame in evenly_spaced(frames_with_zoe(dataset), FRAMES)]
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
    run: RunDir, dataset: Dataset, height: int, width: int, points: bool = False
) -> Iterator[RefinerInputs]:
    """Frames of the run's training scenes, one at a time, at the network's size.

    `points` as for `sample_frames`.
    """
    train = set(read_split(run.split_file).train)
    in_training = [frame for frame in frames_with_zoe(dataset) if frame.scene in train]
    frames = evenly_spaced(in_training, CALIBRATION_FRAMES)
    processing = PrePostProcessing(height, width)
    for number, frame in enumerate(track(frames, len(frames), "calibrating", "frame")):
        rgb, zoe = read(frame)
        if points:
            rgb, zoe = hinted(rgb, zoe, some_points(zoe, number % 2))
        yield processing.before(torch.from_numpy(rgb)[None], torch.from_numpy(zoe)[None])


def frames_with_zoe(dataset: Dataset) -> list[Frame]:
    """The frames that have pseudo depth. Raises `UserError` if there are none."""
    frames = [frame for frame in dataset.frames if frame.zoe is not None]
    if not frames:
        root = dataset.root
        raise UserError(
            f"no frame in {root} has pseudo depth, and an engine is compared on such frames: make "
            f"it with `zoerefine data pseudo {root}`"
        )
    return frames


def read(frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """RGB uint8 [H, W, 3] and pseudo depth uint16 [H, W], on the picture's grid."""
    # Late: an engine without real frames is built without OpenCV and Pillow.
    from zoerefine.base.files.images import read_rgb
    from zoerefine.depth.data.cache.decode import on_grid_of, read_zoe

    assert frame.zoe is not None
    rgb, zoe = read_rgb(frame.rgb), read_zoe(frame.zoe)
    return rgb, on_grid_of(rgb, zoe, frame.zoe, frame.rgb) if frame.sizes_may_differ else zoe
