"""An ONNX file with pre- and post-processing inside, run by ONNX Runtime without torch.

Batch, height and width are dynamic. Other programs that read ONNX, such as Triton, take the same
file.
"""

import os
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from zoerefine.base.errors import UserError, install
from zoerefine.base.machine.cores import threads_of_a_call
from zoerefine.base.messages import say
from zoerefine.depth.exporting.bundle.containers import ONNX
from zoerefine.depth.exporting.engine_kinds import (
    INSTALLED,
    NOT_INSTALLED,
    ArrayForward,
    BuiltEngine,
    Bundle,
    cache_file,
    last_line,
)

if TYPE_CHECKING:
    from zoerefine.depth.exporting.source import ExportSource

NAME = "onnx"
INSTALL = install("onnx")
PARALLEL_CALLS = False
CONTAINER = ONNX
GRAPHS = 0
TAKES_ARRAYS = True
BUILD_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
TENSORRT, RTX = "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider"
# ONNX Runtime's ways to compute, as we call them. The first that works is taken, but TensorRT only
# if it is asked for: it builds an engine for each new size, and wheels list it without having it.
PROVIDERS = {CUDA: "CUDA", RTX: "TensorRT-RTX", CPU: "CPU", TENSORRT: "TensorRT"}
ASKED = "ZOEREFINE_ONNX"  # the variable: one of these, in small letters
PLUGIN = "onnxruntime_ep_nv_tensorrt_rtx"  # NVIDIA's package with the provider for RTX cards


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
    from zoerefine.depth.exporting.onnx_graph import shipped_to_onnx

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
    """A session of ONNX Runtime, on the first of `providers` that works; says which.

    Raises `UserError` if none does.
    """
    from onnxruntime import __version__ as version

    for provider in providers():
        try:
            session = session_on(provider, model)
        except Exception as error:  # its errors have no common class
            problem = last_line(error)
        else:
            if session.get_providers()[0] == provider:
                say(description(version, provider))
                return session
            problem = "its libraries are missing or of other versions"
        if provider != CPU:
            say(f"ONNX Runtime {version} does not compute on {PROVIDERS[provider]}: {problem}")
    raise UserError(f"ONNX Runtime {version} cannot run this engine: {problem}")


def session_on(provider: str, model: bytes) -> Any:
    """A session that tries a provider first, and keeps what that builds in the user's cache."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads_of_a_call()
    # Spinning threads would take the cores from whatever else runs: decoding, other processes.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors
    folder = str(cache_file("onnx", PROVIDERS[provider].lower(), onnxruntime.__version__))
    if provider == RTX:
        options.add_provider_for_devices(rtx_cards(), {"nv_runtime_cache_path": folder})
        return onnxruntime.InferenceSession(model, options, enable_fallback=0)
    cached = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": folder,
              "trt_timing_cache_enable": "1", "trt_timing_cache_path": folder}  # fmt: skip
    wanted = [(TENSORRT, cached), CUDA] if provider == TENSORRT else [provider]
    names = [*wanted, CPU] if provider != CPU else [CPU]
    # Its own fallback would print to standard output.
    return onnxruntime.InferenceSession(model, options, providers=names, enable_fallback=0)


def providers() -> list[str]:
    """Those to try, in order. Raises `UserError` if the one that is asked for is not installed."""
    import onnxruntime

    installed = {*onnxruntime.get_available_providers(), *([RTX] if rtx_cards() else [])}
    names = {title.lower(): name for name, title in PROVIDERS.items() if name in installed}
    asked = os.environ.get(ASKED)
    if asked is None:
        return [name for name in names.values() if name != TENSORRT]
    if asked not in names:
        raise UserError(f"{ASKED} is {asked!r}; this machine's ONNX Runtime has {', '.join(names)}")
    return [names[asked]]


@cache
def rtx_cards() -> list[Any]:
    """The cards that NVIDIA's plug-in computes on; none where it is absent or finds no driver."""
    if not find_spec(PLUGIN):
        return []
    import onnxruntime
    import onnxruntime_ep_nv_tensorrt_rtx as plugin

    try:
        onnxruntime.register_execution_provider_library(RTX, plugin.get_library_path())
    except Exception as error:  # its errors have no common class
        say(f"{PLUGIN} is left out: {last_line(error)}")
        return []
    return [one for one in onnxruntime.get_ep_devices() if one.ep_name == RTX]


def description(version: str, provider: str) -> str:
    """Where a session computes, in a line."""
    threads = threads_of_a_call()
    on_cpu = f", {threads} thread{'' if threads == 1 else 's'}" if provider == CPU else ""
    return f"ONNX Runtime {version} computes on {PROVIDERS.get(provider, provider)}{on_cpu}"


def has_gpu_provider() -> bool:
    """Whether the installed ONNX Runtime is made for NVIDIA GPUs."""
    return bool(find_spec("onnxruntime")) and providers()[0] != CPU
