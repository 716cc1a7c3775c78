"""The engine that needs only torch: TorchScript, frozen, channels-last, in any floating precision.

TorchScript is deprecated, but no other format puts a TensorRT engine into one file today. All use
of it is in this module.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from zoerefine.base.errors import UserError
from zoerefine.base.machine.device import has_bf16, pick_device
from zoerefine.depth.exporting.bundle.containers import TORCHSCRIPT
from zoerefine.depth.exporting.engine_kinds import BuiltEngine, Bundle, Forward, last_line
from zoerefine.depth.exporting.source import ExportSource

NAME = "torchscript"
INSTALL = ""
PARALLEL_CALLS = True
CONTAINER = TORCHSCRIPT
GRAPHS = 4
TAKES_ARRAYS = False


@contextmanager
def jit_warnings_ignored() -> Iterator[None]:
    """Ignore torch.jit's deprecation warnings, and no others."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*`torch\.jit\.\w+` is (deprecated|not supp)")
        yield


def compile_script(module: nn.Module) -> torch.jit.ScriptModule:
    """Compile a module in evaluation mode to TorchScript."""
    with jit_warnings_ignored():
        compiled: torch.jit.ScriptModule = torch.jit.script(module.eval())
    return compiled


def archive(module: torch.jit.ScriptModule) -> bytes:
    """A compiled module as the bytes of its file."""
    buffer = io.BytesIO()
    with jit_warnings_ignored():
        torch.jit.save(module, buffer)
    return buffer.getvalue()


def frozen_archive(module: nn.Module) -> bytes:
    """Compile a module, freeze it, and return the bytes of its file.

    Freezing also inlines: torch cannot save a module that calls an engine which Torch-TensorRT
    embedded, as the name of such an engine's `forward` does not begin with that of its class.
    """
    with jit_warnings_ignored(), torch.no_grad():
        return archive(torch.jit.freeze(compile_script(module)))


def precisions() -> tuple[str, ...]:
    """The precisions that can be built here, the one expected fastest first."""
    if pick_device().type == "cuda":
        return "fp16", "bf16", "fp32"
    return ("bf16", "fp32") if has_bf16(pick_device()) else ("fp32", "bf16")


def missing_requirement() -> str:
    """Nothing: it can be built and run wherever torch is installed."""
    return ""


def allowed_for_auto() -> bool:
    """Always."""
    return True


def machine_facts() -> dict[str, str]:
    """This machine's value of every fact that a bundle may require."""
    return {"device": pick_device().type}


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """Trace the core at its training size; the shipped module around it takes any size."""
    core = source.core(precision)
    device = pick_device()
    core.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    example = tuple(tensor.to(device) for tensor in source.example(2))
    with jit_warnings_ignored(), torch.no_grad():
        traced = torch.jit.trace(core, example, check_trace=False)
    requirements = {"device": ["cuda"]} if device.type == "cuda" else {}
    return BuiltEngine(
        frozen_archive(source.shipped(traced)),
        device=device.type,
        requirements=requirements,
        has_confidence=source.has_confidence,
    )


def load(bundle: Bundle) -> Forward:
    """The forward function of a bundle: the whole module."""
    forward: Forward = load_module(bundle)
    return forward


def load_module(bundle: Bundle) -> torch.jit.ScriptModule:
    """The module of a verified bundle, on the bundle's device.

    Raises `UserError` if torch cannot load it.
    """
    try:
        with jit_warnings_ignored():
            module: torch.jit.ScriptModule = torch.jit.load(
                io.BytesIO(bundle.data), map_location=torch.device(bundle.manifest["device"])
            )
    except (RuntimeError, ValueError) as error:  # ValueError: of an engine class
        raise UserError(
            f"{bundle.path}, built with torch {bundle.manifest['torch']}, cannot be loaded by "
            f"torch {torch.__version__}: {last_line(error)}"
        ) from None
    return module.eval()
