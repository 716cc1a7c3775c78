"""A `tensorrt` engine in a `.pt2` package instead of TorchScript, which torch has deprecated.

AOTInductor compiles what is around the engine, and calls it by Torch-TensorRT's operator. The
engine is an object in the package, which torch's loader makes with Torch-TensorRT's runtime: so the
runtime is loaded first.
"""

from dataclasses import replace

import sympy
import torch
from torch import Tensor, nn

from zoerefine.base.machine.device import pick_device
from zoerefine.depth.exporting.bundle.containers import PT2
from zoerefine.depth.exporting.engine_kinds import BuiltEngine
from zoerefine.depth.exporting.engines import aoti_engine as aoti
from zoerefine.depth.exporting.engines import tensorrt_engine as tensorrt
from zoerefine.depth.exporting.engines.tensorrt_engine import INPUTS, OUTPUTS
from zoerefine.depth.exporting.source import ExportSource

NAME = "tensorrt-pt2"
CONTAINER, load = PT2, aoti.load
# The rest is that of `tensorrt`.
INSTALL, GRAPHS, precisions = tensorrt.INSTALL, tensorrt.GRAPHS, tensorrt.precisions
PARALLEL_CALLS, TAKES_ARRAYS = tensorrt.PARALLEL_CALLS, tensorrt.TAKES_ARRAYS


def missing_requirement() -> str:
    """Why this machine cannot build the engine; "" if it can: what `tensorrt` and `aoti` need."""
    return tensorrt.missing_requirement() or aoti.missing_requirement()


def allowed_for_auto() -> bool:
    """Never: where it can be built, `tensorrt` can be, in less time."""
    return False


def machine_facts() -> dict[str, str]:
    """This machine's value of every fact that a bundle may require."""
    return aoti.machine_facts() | tensorrt.machine_facts()


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """As `tensorrt` builds it, in a package. Raises `UserError` if the C++ compiler fails, too."""
    built = tensorrt.build_kind(source, precision, NAME, in_package)
    return replace(built, requirements=built.requirements | aoti.of_this_processor())


def in_package(engine: bytes, source: ExportSource) -> bytes:
    """The shipped module around a serialized engine, as a `.pt2` package."""
    from torch_tensorrt.dynamo import CompilationSettings
    from torch_tensorrt.dynamo.runtime import TorchTensorRTModule

    batch = sympy.Symbol("batch", integer=True, positive=True)
    names = OUTPUTS if source.has_confidence else OUTPUTS[:1]
    rgb01, depth = (
        {"shape_exprs": [batch, channels, source.height, source.width], "dtype": torch.float32}
        for channels in (source.channels, 1)
    )
    fields = TorchTensorRTModule(
        engine,
        INPUTS,
        names,
        settings=CompilationSettings(lazy_engine_init=True),  # otherwise it also opens caches
        # What the exporter takes for the shapes of outputs, in terms of the inputs'.
        symbolic_shape_expressions={"inputs": [rgb01, depth], "outputs": [depth] * len(names)},
    )._pack_engine_info()
    core = EngineCore(torch.classes.tensorrt.Engine(fields))
    program = aoti.to_program(source, core, pick_device())
    return aoti.compile_package(program, aoti.OPTIONS | aoti.ON_GPU)


class EngineCore(nn.Module):
    """An engine as a core of `ShippedModule`."""

    def __init__(self, engine: torch.ScriptObject) -> None:
        super().__init__()
        self.engine = engine

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor | tuple[Tensor, ...]:
        outputs: list[Tensor] = torch.ops.tensorrt.execute_engine([rgb01, zoe_m], self.engine)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
