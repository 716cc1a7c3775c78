"""What an engine is built from: a refiner, its size, and frames to calibrate with."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from zoerefine.exporting.int8_operator import OperatorInt8Conv
from zoerefine.exporting.precision import Int8Conv, RefinerInputs, to_precision
from zoerefine.exporting.shipped_module import ShippedModule, core_of
from zoerefine.model import RefinerNetwork
from zoerefine.points.channels import channels_of


@dataclass(frozen=True)
class ExportSource:
    """What an engine is built from.

    Attributes:
        refiner: float32, on the CPU, in evaluation mode.
        height, width: the size that the refiner was trained at.
        calibration: yields batches of training frames at that size.
    """

    refiner: RefinerNetwork
    height: int
    width: int
    calibration: Callable[[], Iterator[RefinerInputs]]

    def example(self, batch: int) -> RefinerInputs:
        """A random batch of plausible inputs on the CPU: [B, channels, h, w] and [B, 1, h, w]."""
        size = self.height, self.width
        return torch.rand(batch, self.channels, *size), torch.rand(batch, 1, *size) + 1

    @property
    def channels(self) -> int:
        """Of a picture: RGB, and what metric points say if the refiner takes them."""
        return channels_of(self.refiner.takes_points)

    def core(self, precision: str, int8_conv: type[Int8Conv] = OperatorInt8Conv) -> nn.Module:
        """What engines are built from: the refiner in `precision`, for this size only.

        It is a core of `ShippedModule`. Its graph names no device, so a bundle can be loaded on
        another one. `int8_conv` as in `to_precision`.
        """
        refiner = to_precision(self.refiner, precision, self.calibration, int8_conv)
        refiner.fix_size(self.height, self.width)
        return core_of(refiner)

    def program(self, core: nn.Module) -> torch.export.ExportedProgram:
        """A core of this source as a graph with a dynamic batch."""
        batch = torch.export.Dim("batch")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.export's, about functions of its own
            # torch.export would take a batch of 1 for a constant.
            return torch.export.export(
                core, self.example(2), dynamic_shapes=({0: batch}, {0: batch})
            )

    def shipped(self, core: nn.Module) -> ShippedModule:
        """A core with its pre- and post-processing."""
        return ShippedModule(core, self.height, self.width, self.has_confidence)

    @property
    def has_confidence(self) -> bool:
        """Whether engines have the second output."""
        return self.refiner.has_confidence

    @property
    def parameters(self) -> int:
        """The number of the refiner's parameters."""
        return sum(tensor.numel() for tensor in self.refiner.parameters())
