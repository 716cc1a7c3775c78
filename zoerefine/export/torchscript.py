"""The engine without dependencies: TorchScript, frozen, channels last, bf16 where it pays.

TorchScript is deprecated in torch but the only form that one file with a TensorRT engine can
have today; all use of it is here and in `bundle.py`.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx.experimental.optimization import fuse

from zoerefine.export.module import Shipped, Typed
from zoerefine.model import Refiner


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch.jit's own deprecation notices and nothing else."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*`torch\.jit\.\w+` is (deprecated|not supp)")
        yield


def build_torchscript(
    refiner: Refiner, height: int, width: int, precision: str
) -> torch.jit.ScriptModule:
    """Compile a refiner for the size that it was trained at; the shipped module takes any.

    Args:
        refiner: in evaluation mode, float32, on the CPU.
        precision: fp32 or bf16.
    """
    core = copy.deepcopy(refiner)
    if precision == "bf16":
        # Batch norm is folded into the convolutions first: its statistics need float32.
        core.backbone = Typed(fuse(core.backbone.eval()), core.stride, torch.bfloat16)
    core.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    example = torch.rand(2, 3, height, width), torch.rand(2, 1, height, width) + 1
    with quiet(), torch.no_grad():
        traced = torch.jit.trace(core, example, check_trace=False)
        return torch.jit.freeze(torch.jit.script(Shipped(traced, height, width).eval()))
