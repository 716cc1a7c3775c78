"""Simulated 8-bit quantization as one operator, which Torch-TensorRT turns into Q and DQ layers.

NVIDIA's ModelOpt has such an operator, too. But Torch-TensorRT runs it on the weights while it
simplifies the graph, and that needs the CUDA compiler nvcc.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

LARGEST = 127  # symmetric: the largest magnitude is the code 127


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
    step = largest / LARGEST
    codes = (values / step).round().clamp(-LARGEST - 1, LARGEST)
    return (codes * step).to(values.dtype)


@quantize_int8.register_fake
def _(values: Tensor, largest: Tensor) -> Tensor:
    return torch.empty_like(values)


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
