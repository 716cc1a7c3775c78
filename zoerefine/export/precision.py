"""A refiner in another number format: fp16 and bf16 by type, int8 by simulated rounding.

Engines take a network's precision from its own types (TensorRT 11 takes it from nothing else),
so what is built is always the network that this file makes. Only the backbone changes, and of it
not the head: log depth, bounds and exponential stay float32.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.experimental.optimization import fuse

from zoerefine.device import DTYPES
from zoerefine.model import RefinerNetwork
from zoerefine.model.refiner import DepthHead

Inputs = tuple[Tensor, Tensor]  # rgb01 [B, 3, h, w], zoe_m [B, 1, h, w]
BITS = (-128, 127)


class Typed(nn.Module):
    """A backbone that computes in another number format between float32 ends."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        for module in backbone.modules():
            if not any(module.children()) and not isinstance(module, DepthHead):
                module.to(dtype)
        self.inner = backbone
        self.dtype = dtype

    def forward(self, inputs: Tensor) -> Tensor:
        depth: Tensor = self.inner(inputs.to(self.dtype))
        return depth.float()


class WholeHeads(fx.Tracer):
    """Traces a backbone, but leaves its head the module that it is."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, DepthHead) or super().is_leaf_module(m, module_qualified_name)


class Int8Conv(nn.Module):
    """A convolution whose input and weights are rounded to 8 bits, and are float32 again after.

    Engines turn the pair of roundings into one 8-bit convolution. Symmetric; one scale for the
    input, from its largest value in calibration, and one for each output channel's weights.
    """

    def __init__(self, conv: nn.Conv2d, largest: float) -> None:
        super().__init__()
        self.conv = conv
        self.largest = max(largest, 1e-6)
        peaks = conv.weight.detach().abs().amax((1, 2, 3)).clamp(min=1e-6)
        self.register_buffer("peaks", peaks)  # [outputs]
        self.register_buffer("zeros", torch.zeros(len(peaks), dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        conv = self.conv
        return F.conv2d(
            self.rounded_input(x), self.rounded_weight(),
            conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups,
        )  # fmt: skip

    def rounded_input(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, self.largest / BITS[1], 0, *BITS)

    def rounded_weight(self) -> Tensor:
        return torch.fake_quantize_per_channel_affine(
            self.conv.weight, self.get_buffer("peaks") / BITS[1], self.get_buffer("zeros"), 0, *BITS
        )


def in_precision(
    refiner: RefinerNetwork,
    precision: str,
    calibration: Callable[[], Iterator[Inputs]],
    rounding: type[Int8Conv] = Int8Conv,
) -> RefinerNetwork:
    """A copy of a float32 refiner that computes in `precision`, one of fp32, fp16, bf16, int8.

    Args:
        calibration: gives batches of training frames; asked for int8 alone.
        rounding: the convolution of int8.
    """
    core = copy.deepcopy(refiner).eval()
    if precision == "fp32":
        return core
    # Batch norm is folded into the convolutions first: its statistics need float32.
    core.backbone = fuse(
        fx.GraphModule(core.backbone, WholeHeads().trace(core.backbone)), no_trace=True
    )
    if precision == "int8":
        largest = observe(core, calibration())
        round_convolutions(core.backbone, largest, rounding)
    else:
        core.backbone = Typed(core.backbone, DTYPES[precision])
    return core.eval()


def observe(core: RefinerNetwork, batches: Iterator[Inputs]) -> dict[str, float]:
    """The largest magnitude that enters each convolution, by name: its mean over the batches."""
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


def round_convolutions(
    backbone: nn.Module, largest: dict[str, float], rounding: type[Int8Conv]
) -> None:
    """Make the convolutions 8-bit, in the order in which they run; not the first, whose input
    mixes colours and depth, and not the head, whose output is the result."""
    for name in list(largest)[1:]:
        conv = backbone.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        if not isinstance(conv, DepthHead):
            backbone.set_submodule(name, rounding(conv, largest[name]))
