"""An ONNX file with pre- and post-processing inside, run by ONNX Runtime without torch.

Batch, height and width are dynamic. Other programs that read ONNX, such as Triton, take the same
file.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.machine.cores import threads_of_a_call
from zoerefine.base.progress import say
from zoerefine.depth.exporting.bundle.containers import ONNX
from zoerefine.depth.exporting.engine_kinds import (
    INSTALLED,
    NOT_INSTALLED,
    ArrayForward,
    BuiltEngine,
    Bundle,
)

if TYPE_CHECKING:
    from zoerefine.depth.exporting.source import ExportSource

NAME = "onnx"
INSTALL = "pip install 'zoerefine[onnx]'"
PARALLEL_CALLS = False
CONTAINER = ONNX
GRAPHS = 0
TAKES_ARRAYS = True
BUILD_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
CPU = "CPUExecutionProvider"
# ONNX Runtime's ways to compute, the fastest first, as we call them.
PROVIDERS = {"TensorrtExecutionProvider": "TensorRT", "CUDAExecutionProvider": "CUDA", CPU: "CPU"}


def precisions() -> tuple[str, ...]:
    """The precisions that can be built here; ONNX Runtime only emulates fp16 on CPUs."""
    return ("fp16", "fp32", "int8") if has_gpu_provider() else ("fp32", "int8")


def missing_requirement() -> str:
    """Why this machine cannot build the engine; "" if it can."""
    missing = [name for name in BUILD_PACKAGES if not find_spec(name)]
    return f"{' and '.join(missing)} {NOT_INSTALLED}: {INSTALL}" if missing else ""


def allowed_for_auto() -> bool:
    """Where it can be built, and uses the GPU if there is one."""
    if missing_requirement():
        return False
    import torch

    return has_gpu_provider() or not torch.cuda.is_available()


def machine_facts() -> dict[str, str]:
    """Whether ONNX Runtime is installed. Any newer one reads the file, too."""
    return {"ONNX Runtime": INSTALLED if find_spec("onnxruntime") else NOT_INSTALLED}


def build(source: "ExportSource", precision: str) -> BuiltEngine:
    """Export the refiner with its pre- and post-processing."""
    from zoerefine.depth.exporting.onnx.graph import shipped_to_onnx

    return BuiltEngine(
        shipped_to_onnx(source.core(precision), source),
        requirements={"ONNX Runtime": [INSTALLED]},
        has_confidence=source.has_confidence,
    )


def load(bundle: Bundle) -> ArrayForward:
    """The forward function of a bundle; says which processor runs it."""
    session = open_session(bundle.data)

    def forward(rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> list[np.ndarray]:
        outputs: list[np.ndarray] = session.run(None, {"rgb": rgb_u8, "zoe": zoe_u16})
        return outputs

    return forward


def open_session(model: bytes) -> Any:
    """A session of ONNX Runtime, on the first of `PROVIDERS` that works here.

    Raises `UserError` if the installed ONNX Runtime cannot run the model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads_of_a_call()
    # Spinning threads would take the cores from whatever else runs: decoding, other processes.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors
    available = onnxruntime.get_available_providers()
    try:
        session = onnxruntime.InferenceSession(
            model, options, providers=[name for name in PROVIDERS if name in available]
        )
    except Exception as error:  # its errors have no common class
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise UserError(
            f"ONNX Runtime {onnxruntime.__version__} cannot run this engine: {last}"
        ) from None
    say(description(onnxruntime.__version__, session.get_providers()[0]))
    return session


def description(version: str, provider: str) -> str:
    """Where a session computes, in a line."""
    threads = threads_of_a_call()
    on_cpu = f", {threads} thread{'' if threads == 1 else 's'}" if provider == CPU else ""
    return f"ONNX Runtime {version} computes on {PROVIDERS.get(provider, provider)}{on_cpu}"


def has_gpu_provider() -> bool:
    """Whether the installed ONNX Runtime is made for NVIDIA GPUs."""
    if not find_spec("onnxruntime"):
        return False
    import onnxruntime

    return any(name in PROVIDERS and name != CPU for name in onnxruntime.get_available_providers())
