"""The engine that needs only torch: TorchScript, frozen, channels-last, in any floating precision.

TorchScript is deprecated, but no other format puts a TensorRT engine into one file today. All use
of it is in this module.
"""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from zoerefine.device import has_bf16, pick_device
from zoerefine.errors import UserError
from zoerefine.exporting.containers import TORCHSCRIPT
from zoerefine.exporting.engine_kinds import BuiltEngine, Forward
from zoerefine.exporting.export_source import ExportSource

NAME = "torchscript"
INSTALL = ""
PARALLEL_CALLS = True
CONTAINER = TORCHSCRIPT
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
        shipped = torch.jit.script(source.shipped(traced).eval())
        module = torch.jit.freeze(shipped)
    requirements = {"device": ["cuda"]} if device.type == "cuda" else {}
    return BuiltEngine(
        archive(module),
        device=device.type,
        requirements=requirements,
        has_confidence=source.has_confidence,
    )


def load(path: Path, read_file: Callable[[str], bytes], manifest: dict[str, Any]) -> Forward:
    """The forward function of a bundle: the whole module."""
    forward: Forward = load_module(path, manifest)
    return forward


def load_module(path: Path, manifest: dict[str, Any]) -> torch.jit.ScriptModule:
    """The module of a verified bundle, on the bundle's device.

    Raises `UserError` if torch cannot load it.
    """
    try:
        with jit_warnings_ignored():
            module: torch.jit.ScriptModule = torch.jit.load(
                str(path), map_location=torch.device(manifest["device"])
            )
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1]
        raise UserError(
            f"{path}, built with torch {manifest['torch']}, cannot be loaded by torch "
            f"{torch.__version__}: {last}"
        ) from None
    return module.eval()
