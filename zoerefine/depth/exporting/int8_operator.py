"""Simulated 8-bit quantization as one operator, which each exporter turns into its own layers.

NVIDIA's ModelOpt has such an operator, too. But Torch-TensorRT runs it on the weights while it
simplifies the graph, and that needs the CUDA compiler nvcc.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from zoerefine.depth.exporting.precision import Int8Conv

LARGEST_CODE, SMALLEST_CODE = 127, -128  # symmetric: the largest magnitude has the code 127


# The tag keeps the operator in the graph: operators without it are computed ahead where all
# their inputs are constant, as the weights are.
@torch.library.custom_op(
    "zoerefine::quantize_int8", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def quantize_int8(values: Tensor, largest: Tensor) -> Tensor:
    """Values rounded to 255 steps between -largest and largest.

    Args:
        values: any shape, floating point.
        largest: float32, one element, or one for each of the first dimension's and 1 elsewhere.
    """
    step = largest / LARGEST_CODE
    codes = (values / step).round().clamp(SMALLEST_CODE, LARGEST_CODE)
    return (codes * step).to(values.dtype)


@quantize_int8.register_fake
def _(values: Tensor, largest: Tensor) -> Tensor:
    return torch.empty_like(values)


class OperatorInt8Conv(Int8Conv):
    """Quantizes with the operator, which exported graphs keep."""

    def __init__(self, conv: nn.Conv2d, largest: float) -> None:
        super().__init__(conv, largest)
        self.register_buffer("peak", torch.tensor(self.largest))

    def quantized_input(self, x: Tensor) -> Tensor:
        return quantize_int8(x, self.get_buffer("peak"))

    def quantized_weight(self) -> Tensor:
        return quantize_int8(self.conv.weight, self.get_buffer("peaks")[:, None, None, None])


@cache
def register_converter() -> None:
    """Tell Torch-TensorRT, which must be importable, how the operator becomes layers."""
    from torch_tensorrt.dynamo._SourceIR import SourceIR
    from torch_tensorrt.dynamo.conversion import dynamo_tensorrt_converter, impl

    @dynamo_tensorrt_converter(
        torch.ops.zoerefine.quantize_int8.default, supports_dynamic_shapes=True
    )
    def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> Any:
        values, largest = args
        return impl.quantize.quantize(
            ctx, target, SourceIR.ATEN, name, values, largest, num_bits=8, exponent_bits=0
        )
