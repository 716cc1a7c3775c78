"""The engine without dependencies: TorchScript, frozen, channels last, low precision where it pays.

TorchScript is deprecated in torch but the only form that one file with a TensorRT engine can
have today; all use of it is here and in `bundle.py`.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from zoerefine.device import has_bf16, pick_device
from zoerefine.export.engine_kinds import Built, ExportSource, Run
from zoerefine.export.precision import in_precision
from zoerefine.export.shipped_module import Shipped

NAME = "torchscript"
INSTALL = ""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch.jit's own deprecation notices and nothing else."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*`torch\.jit\.\w+` is (deprecated|not supp)")
        yield


def script(module: nn.Module) -> torch.jit.ScriptModule:
    """Compile a module in evaluation mode."""
    with quiet():
        compiled: torch.jit.ScriptModule = torch.jit.script(module.eval())
    return compiled


def precisions() -> tuple[str, ...]:
    """What it can be built in here, the fastest first."""
    if pick_device().type == "cuda":
        return "fp16", "bf16", "fp32"
    return ("bf16", "fp32") if has_bf16(pick_device()) else ("fp32", "bf16")


def lacking() -> str:
    """Nothing: it can be built and run wherever torch is."""
    return ""


def usable() -> bool:
    """Whether `auto` may take it."""
    return True


def here() -> dict[str, str]:
    """What its bundles may need, as it is on this machine."""
    return {"device": pick_device().type}


def build(source: ExportSource, precision: str) -> Built:
    """Compile the core for its one size; the shipped module takes any."""
    core = in_precision(source.refiner, precision, source.calibration)
    device = pick_device()
    core.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    example = tuple(tensor.to(device) for tensor in source.example(2))
    with quiet(), torch.no_grad():
        traced = torch.jit.trace(core, example, check_trace=False)
        shipped = torch.jit.script(Shipped(traced, source.height, source.width).eval())
        module = torch.jit.freeze(shipped)
    needs = {"device": ["cuda"]} if device.type == "cuda" else {}
    return Built(module, device=device.type, needs=needs)


def attach(module: torch.jit.ScriptModule, read: Callable[[str], bytes], precision: str) -> Run:
    """The engine of a loaded bundle: the module itself."""
    run: Run = module
    return run
