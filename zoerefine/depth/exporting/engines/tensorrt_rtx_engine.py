"""A TensorRT for RTX engine, built ahead of time on any machine for GeForce and RTX cards.

The build needs no GPU; running needs one of `TARGETS`. The bundle holds the plan and the ONNX
graph that it was built from. Pre- and post-processing are the bundle's TorchScript.
"""

import atexit
import hashlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from zoerefine.base.errors import UserError, install, missing_package
from zoerefine.depth.exporting.bundle.containers import TORCHSCRIPT
from zoerefine.depth.exporting.engine_kinds import (
    NOT_INSTALLED,
    BuiltEngine,
    Bundle,
    Forward,
    cache_file,
    gpu_architecture,
    read_cache,
    write_cache,
)
from zoerefine.depth.exporting.engines.torchscript_engine import (
    archive,
    compile_script,
    load_module,
)
from zoerefine.depth.exporting.onnx_graph import INPUTS, OUTPUTS, to_onnx
from zoerefine.depth.exporting.shipped_module import PrePostProcessing
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.exporting.verify import check_size
from zoerefine.depth.points import channels_of

NAME = "tensorrt-rtx"
INSTALL = install("tensorrt-rtx")
PARALLEL_CALLS = False
CONTAINER = TORCHSCRIPT
GRAPHS = 0  # its stream waits for other streams
TAKES_ARRAYS = False
BATCHES = (1, 4, 16)  # that an engine is compared at; it takes all from the first to the last
PROFILE = (1, 1, 16)  # smallest, best and largest batch: it is tuned for one camera's next frame
# RTX 20, A100, RTX 30, 40 and 50, DGX Spark: all that TensorRT for RTX supports.
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")
DEVICE = "cuda"
BUILD_PACKAGES = ("tensorrt_rtx_bindings", "onnx", "onnxscript")
PLAN, ONNX = "engine.plan", "refiner.onnx"


def precisions() -> tuple[str, ...]:
    """The precisions, the fastest first; int8 is last because it needs calibration."""
    return "fp16", "fp32", "int8"


def missing_requirement() -> str:
    """Why this machine cannot build the engine; "" if it can."""
    missing = [name for name in BUILD_PACKAGES if not find_spec(name)]
    return f"{' and '.join(missing)} {NOT_INSTALLED}: {INSTALL}" if missing else ""


def allowed_for_auto() -> bool:
    """Where it can be built and there is a GPU that runs it."""
    return not missing_requirement() and gpu_architecture() in TARGETS


def machine_facts() -> dict[str, str]:
    """This machine's value of every fact that a bundle may require."""
    version = bindings().__version__ if find_spec("tensorrt_rtx_bindings") else NOT_INSTALLED
    return {"GPU architecture": gpu_architecture(), "TensorRT for RTX": version}


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """Build the core's plan for all `TARGETS`, with a dynamic batch.

    Raises `UserError` if TensorRT for RTX refuses it or silently builds another precision.
    """
    core = source.core(precision)
    onnx = to_onnx(core, source)
    plan = build_plan(onnx, source)
    check_size("tensorrt-rtx", precision, len(plan), source.parameters)
    return BuiltEngine(
        archive(compile_script(PrePostProcessing(source.height, source.width))),
        device="cuda",
        files={PLAN: plan, ONNX: onnx},
        requirements={
            "GPU architecture": list(TARGETS),
            "TensorRT for RTX": [machine_facts()["TensorRT for RTX"]],
        },
        batches=BATCHES,
        has_confidence=source.has_confidence,
        torch_equivalent=source.shipped(core),
    )


def build_plan(onnx: bytes, source: ExportSource, targets: tuple[str, ...] = TARGETS) -> bytes:
    """Parse and build for cards of these architectures."""
    trt = bindings()
    builder = trt.Builder(logger())
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger())
    if not parser.parse(onnx):
        faults = "; ".join(parser.get_error(i).desc() for i in range(parser.num_errors))
        raise UserError(f"TensorRT for RTX cannot parse the refiner: {faults}")
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    for name, tensor in zip(INPUTS, source.example(1), strict=True):
        profile.set_shape(name, *((batch, *tensor.shape[1:]) for batch in PROFILE))
    config.add_optimization_profile(profile)
    config.num_compute_capabilities = len(targets)
    for index, target in enumerate(targets):
        config.set_compute_capability(
            getattr(trt.ComputeCapability, target.replace("sm_", "SM")), index
        )
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise UserError(
            f"TensorRT for RTX {trt.__version__} could not build an engine for "
            f"{', '.join(targets)}; its messages are above"
        )
    return bytes(plan)


def load(bundle: Bundle) -> Forward:
    """The forward function of a bundle: the plan between pre- and post-processing."""
    module, plan = load_module(bundle), bundle.file(PLAN)
    engine = open_plan(plan)
    digest = hashlib.sha256(plan).hexdigest()[:16]
    kernels = cache_file("tensorrt-rtx", bindings().__version__, gpu_architecture(), digest)
    context, save_kernels = create_context(engine, kernels)
    one_call = Lock()  # a context holds the shapes and addresses of one call
    # A stream of its own: calls on several streams would share the context's scratch memory, and
    # on the default stream TensorRT waits more often.
    stream = torch.cuda.Stream()

    names = OUTPUTS[: engine.num_io_tensors - len(INPUTS)]

    def forward(rgb_u8: Tensor, zoe_u16: Tensor) -> list[Tensor]:
        rgb01, zoe_m = (tensor.contiguous() for tensor in module.before(rgb_u8, zoe_u16))
        found = [torch.empty_like(zoe_m) for _ in names]
        caller = torch.cuda.current_stream()
        with one_call:
            stream.wait_stream(caller)
            for name, tensor in zip(INPUTS, (rgb01, zoe_m), strict=True):
                context.set_input_shape(name, tuple(tensor.shape))
            for name, tensor in zip((*INPUTS, *names), (rgb01, zoe_m, *found), strict=True):
                context.set_tensor_address(name, tensor.data_ptr())
            if not context.execute_async_v3(stream.cuda_stream):
                raise RuntimeError("TensorRT for RTX could not run the engine")
            caller.wait_stream(stream)
        outputs: list[Tensor] = module.after(zoe_u16, zoe_m, found)
        return outputs

    channels = channels_of(bool(bundle.manifest.get("takes_points")))
    black = torch.zeros(1, module.height, module.width, channels, dtype=torch.uint8, device=DEVICE)
    no_depth = torch.zeros(black.shape[:3], dtype=torch.int16, device=DEVICE).view(torch.uint16)
    forward(black, no_depth)  # compiles the kernels of one picture
    save_kernels()
    atexit.register(save_kernels)  # with the kernels of other batch sizes
    return forward


def create_context(engine: Any, kernels: Path) -> tuple[Any, Callable[[], None]]:
    """An execution context that starts with kept kernels, and a function that keeps them.

    A plan holds no kernels for the GPU: they are compiled at the first call of each batch size.
    Kept kernels that do not fit this GPU and driver are ignored.
    """
    config = engine.create_runtime_config()
    # Otherwise a new batch size runs slower kernels until the right ones are compiled.
    strategies = bindings().DynamicShapesKernelSpecializationStrategy
    config.dynamic_shapes_kernel_specialization_strategy = strategies.EAGER
    compiled = config.create_runtime_cache()
    if data := read_cache(kernels):
        compiled.deserialize(data)
    config.set_runtime_cache(compiled)
    context = engine.create_execution_context(runtime_config=config)
    return context, lambda: write_cache(kernels, bytes(compiled.serialize()))


def open_plan(plan: bytes) -> Any:
    """Load a plan on this machine's GPU. Raises `UserError` if it was built for other GPUs."""
    trt = bindings()
    engine = trt.Runtime(logger()).deserialize_cuda_engine(plan)
    if engine is None:
        raise UserError(
            f"TensorRT for RTX {trt.__version__} cannot open this plan on a GPU of architecture "
            f"{gpu_architecture()}: it was built for {', '.join(TARGETS)}"
        )
    return engine


def bindings() -> Any:
    """The Python bindings. Raises `UserError` if they are not installed."""
    try:
        import tensorrt_rtx_bindings
    except ImportError as error:
        raise missing_package(f"TensorRT for RTX cannot be imported ({error})", NAME) from None
    return tensorrt_rtx_bindings


@cache
def logger() -> Any:
    """One logger for all: the library keeps the first one it is given."""
    trt = bindings()
    return trt.Logger(trt.Logger.ERROR)
