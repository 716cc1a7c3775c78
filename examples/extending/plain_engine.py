"""The refiner as TorchScript, in fp32, as it was trained."""

from zoerefine.depth.exporting.engine_kinds import BuiltEngine
from zoerefine.depth.exporting.engines.torchscript_engine import (
    CONTAINER,
    allowed_for_auto,
    archive,
    compile_script,
    load,
    machine_facts,
    missing_requirement,
)
from zoerefine.depth.exporting.shipped_module import ShippedModule
from zoerefine.depth.exporting.source import ExportSource

NAME = "plain"
INSTALL = ""
PARALLEL_CALLS = True
GRAPHS = 0
TAKES_ARRAYS = False

__all__ = ["CONTAINER", "allowed_for_auto", "load", "machine_facts", "missing_requirement"]


def precisions() -> tuple[str, ...]:
    """fp32 alone."""
    return ("fp32",)


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """Compile the shipped module."""
    import torch

    traced = torch.jit.trace(source.refiner, source.example(2), check_trace=False)
    shipped = compile_script(ShippedModule(traced, source.height, source.width))
    return BuiltEngine(archive(shipped))
