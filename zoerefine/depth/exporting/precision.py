"""A refiner in another precision: fp16 and bf16 by cast, int8 by simulated quantization.

Engines take the precision of a network from the types of its tensors (TensorRT 11 from nothing
else), so every engine is built from the network that this file returns. Only the backbone
changes, and of it not the head: log depth, bounds and exponential stay float32.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.experimental.optimization import fuse

from zoerefine.base.machine.device import DTYPES
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.model.refiner import DepthHead

RefinerInputs = tuple[Tensor, Tensor]  # rgb01 [B, 3, h, w], zoe_m [B, 1, h, w]
INT8 = SMALLEST_CODE, LARGEST_CODE = -128, 127  # symmetric: the largest magnitude has 127


class CastBackbone(nn.Module):
    """A backbone that computes in another type, with float32 input and output."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        for module in backbone.modules():
            if not any(module.children()) and not isinstance(module, DepthHead):
                module.to(dtype)
        self.inner = backbone
        self.dtype = dtype

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        found = self.inner(inputs.to(self.dtype))
        return tuple(map(Tensor.float, found)) if isinstance(found, tuple) else found.float()


class HeadKeepingTracer(fx.Tracer):
    """Traces a backbone but does not look inside its head, so that the head stays a module."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, DepthHead) or super().is_leaf_module(m, module_qualified_name)


def to_precision(
    refiner: RefinerNetwork,
    precision: str,
    calibration: Callable[[], Iterator[RefinerInputs]],
) -> RefinerNetwork:
    """A copy of a float32 refiner that computes in `precision`: fp32, fp16, bf16 or int8.

    Args:
        calibration: yields batches of training frames; called for int8 only.
    """
    core = copy.deepcopy(refiner).eval()
    if precision == "fp32":
        return core
    # Batch norm is folded into the convolutions first: its statistics need float32.
    core.backbone = fuse(
        fx.GraphModule(core.backbone, HeadKeepingTracer().trace(core.backbone)), no_trace=True
    )
    if precision == "int8":
        largest = largest_inputs(core, calibration())
        quantize_convolutions(core.backbone, largest)
    else:
        core.backbone = CastBackbone(core.backbone, DTYPES[precision])
    return core.eval()


def largest_inputs(core: RefinerNetwork, batches: Iterator[RefinerInputs]) -> dict[str, float]:
    """The largest magnitude of each convolution's input, by name: the mean over the batches."""
    seen: dict[str, list[float]] = {}

    def watch(name: str) -> Callable[[nn.Module, Sequence[Any]], None]:
        return lambda _, inputs: seen.setdefault(name, []).append(inputs[0].abs().max().item())

    hooks = [
        module.register_forward_pre_hook(watch(name))
        for name, module in core.backbone.named_modules()
        if isinstance(module, nn.Conv2d)
    ]
    with torch.inference_mode():
        for rgb01, zoe_m in batches:
            core(rgb01, zoe_m)
    for hook in hooks:
        hook.remove()
    return {name: sum(values) / len(values) for name, values in seen.items()}


def quantize_convolutions(backbone: nn.Module, largest: dict[str, float]) -> None:
    """Replace convolutions by 8-bit ones, except the first and the head.

    The first one's input mixes colours and depth, the head's output is the result. `largest` is
    in the order in which the convolutions run.
    """
    for name in list(largest)[1:]:
        conv = backbone.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        if not isinstance(conv, DepthHead):
            backbone.set_submodule(name, Int8Conv(conv, largest[name]))


# The tag keeps the operator in the graph: operators without it are computed ahead where all
# their inputs are constant, as the weights are.
@torch.library.custom_op(
    "zoerefine::quantize_int8", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)
def quantize_int8(values: Tensor, largest: Tensor) -> Tensor:
    """Values rounded to 255 steps between -largest and largest.

    It is one operator, which each exporter turns into its own layers. NVIDIA's ModelOpt has such
    an operator, too. But Torch-TensorRT runs it on the weights while it simplifies the graph, and
    that needs the CUDA compiler nvcc.

    Args:
        values: any shape, floating point.
        largest: float32, one element, or one for each of the first dimension's and 1 elsewhere.
    """
    step = largest / LARGEST_CODE
    codes = (values / step).round().clamp(*INT8)
    return (codes * step).to(values.dtype)


@quantize_int8.register_fake
def _(values: Tensor, largest: Tensor) -> Tensor:
    return torch.empty_like(values)


class Int8Conv(nn.Module):
    """A convolution with simulated quantization of its input and weights to 8 bits.

    Engines turn the two quantizations into one 8-bit convolution. Symmetric; one scale for the
    input, from its largest magnitude in calibration, and one per output channel for the weights.
    """

    def __init__(self, conv: nn.Conv2d, largest: float) -> None:
        super().__init__()
        self.conv = conv
        peaks = conv.weight.detach().abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-6)
        self.register_buffer("peaks", peaks)  # [outputs, 1, 1, 1]
        self.register_buffer("peak", torch.tensor(max(largest, 1e-6)))

    def forward(self, x: Tensor) -> Tensor:
        conv = self.conv
        return F.conv2d(
            quantize_int8(x, self.get_buffer("peak")),
            quantize_int8(conv.weight, self.get_buffer("peaks")),
            conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups,
        )  # fmt: skip


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
