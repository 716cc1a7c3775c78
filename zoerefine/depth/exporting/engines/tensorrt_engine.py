"""A TensorRT engine inside one TorchScript module, built by Torch-TensorRT on this machine's GPU.

The whole refiner becomes one serialized engine with float32 inputs and output and a dynamic
batch. TensorRT 11 takes precision from the types in the model, and so does TensorRT 10 as it is
called here. Written from the sources of torch-tensorrt 2.11 (TensorRT 10.15, engine ABI 8) and
2.13 (TensorRT 11.0, ABI 9). Loading needs only torch and Torch-TensorRT's runtime.
"""

import io
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from ctypes import CDLL
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from zoerefine.base.errors import UserError, install
from zoerefine.depth.exporting.bundle.containers import TORCHSCRIPT
from zoerefine.depth.exporting.engine_kinds import (
    BROKEN,
    NOT_INSTALLED,
    BuiltEngine,
    cache_file,
    gpu_architecture,
    private_copy,
)
from zoerefine.depth.exporting.engines.torchscript_engine import frozen_archive, load
from zoerefine.depth.exporting.precision import register_converter
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.exporting.verify import check_size


@cache
def import_problem() -> str:
    """Why Torch-TensorRT cannot be imported; "" if it can. The answer is kept.

    A second attempt after a failure would find a half-imported package.
    """
    if not find_spec("torch_tensorrt"):
        return NOT_INSTALLED
    printed = io.StringIO()  # a failing import prints to standard output
    try:
        with redirect_stdout(printed):
            import torch_tensorrt  # noqa: F401
    except Exception as error:  # missing TensorRT libraries raise errors of many types
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"{BROKEN} ({lines[0]})"
    return ""


def runtime_problem() -> str:
    """Load Torch-TensorRT's runtime; why that is not possible, "" if it is loaded.

    Its library alone is enough where it finds TensorRT's, as with the lean runtime. Python's
    package needs the packages of the full TensorRT, and knows where those are.
    """
    package = find_spec("torch_tensorrt")
    for folder in (package and package.submodule_search_locations) or ():
        with suppress(OSError):
            torch.ops.load_library(Path(folder) / "lib" / "libtorchtrt_runtime.so")
            return ""
    return import_problem()


def runtime_abi() -> str:
    """The version of serialized engines that Torch-TensorRT's runtime reads.

    Loads the runtime if this process has not yet: without it torch's error for such a file is
    "Unknown type name".
    """
    try:
        torch.classes.tensorrt.Engine  # noqa: B018 (it raises where no runtime is loaded)
    except RuntimeError:
        if problem := runtime_problem():
            return problem
    return str(torch.ops.tensorrt.ABI_VERSION())


def tensorrt_version() -> str:
    """The version of the TensorRT library in this process. To be called after `runtime_abi`.

    The library says it. Packages do not tell: their names differ between releases, Torch-TensorRT
    may put another library in its place, and running an engine needs no Python package.
    """
    for start, name in LIBRARIES.items():
        if path := loaded_library(start):
            library = CDLL(path)
            parts = (getattr(library, f"getInferLib{one}Version")() for one in PARTS)
            return f"{name} {'.'.join(map(str, parts))}".strip()
    return NOT_INSTALLED


def loaded_library(start: str) -> str:
    """The path of a library of this process whose file's name begins so; "" if there is none."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return ""
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    return next((path for path in paths if Path(path).name.startswith(start)), "")


LEAN = "lean"
# Beginnings of files' names, with what their versions are called.
LIBRARIES = {
    "libnvinfer.so.": "", "libnvinfer_lean.so.": LEAN, "libtensorrt_rtx.so.": "tensorrt_rtx"
}  # fmt: skip
PARTS = "Major", "Minor", "Patch", "Build"

NAME = "tensorrt"
# The lock file keeps torch: the newest Torch-TensorRT would replace it.
INSTALL = install("tensorrt")
PARALLEL_CALLS = False
CONTAINER = TORCHSCRIPT
GRAPHS = 1  # its context is for one shape at a time
TAKES_ARRAYS = False
BATCHES = (1, 4, 16)  # that an engine is compared at; it takes all from the first to the last
PROFILE = (1, 1, 16)  # smallest, best and largest batch: it is tuned for one camera's next frame
# The builder's most thorough search, and more than one timing of each kernel: a build takes longer.
TUNING = {"optimization_level": 5, "num_avg_timing_iters": 4}
INPUTS, OUTPUTS = ["rgb01", "zoe_m"], ["output0", "output1"]  # as Torch-TensorRT names bindings

__all__ = ["load"]  # the whole bundle is one TorchScript module


def precisions() -> tuple[str, ...]:
    """The precisions, the fastest first; int8 is last because it needs calibration."""
    return "fp16", "bf16", "fp32", "int8"


def missing_requirement() -> str:
    """Why this machine cannot build the engine; "" if it can."""
    if not torch.cuda.is_available():
        return (
            "a TensorRT engine needs an NVIDIA GPU and this machine has none: export on the "
            "machine that will run it, or use --engine torchscript"
        )
    problem = import_problem()
    return f"Torch-TensorRT is {problem}: {INSTALL}" if problem else ""


def allowed_for_auto() -> bool:
    """Wherever it can be built."""
    return not missing_requirement()


def machine_facts() -> dict[str, str]:
    """This machine's value of every fact that a bundle may require."""
    abi = runtime_abi()
    return {
        "GPU architecture": gpu_architecture(),
        "torch": torch.__version__.split("+")[0],
        "TensorRT": tensorrt_version(),
        "Torch-TensorRT's engine ABI": abi,
    }


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """Build the core on this machine's GPU and embed it in a TorchScript module.

    Raises `UserError` if that fails, or if the builder silently used another precision.
    """
    return build_kind(source, precision, NAME)


def in_torchscript(engine: bytes, source: ExportSource) -> bytes:
    """The shipped module around a serialized engine, as a TorchScript file."""
    import torch_tensorrt

    core = torch_tensorrt.ts.embed_engine_in_new_module(
        engine,
        input_binding_names=INPUTS,
        output_binding_names=OUTPUTS if source.has_confidence else OUTPUTS[:1],
        device=torch_tensorrt.Device(gpu_id=torch.cuda.current_device()),
    )
    return frozen_archive(source.shipped(core))


def build_kind(
    source: ExportSource,
    precision: str,
    kind: str,
    packed: Callable[[bytes, ExportSource], bytes] = in_torchscript,
    **options: Any,
) -> BuiltEngine:
    """`build` for a kind with another file around the engine, or further options of conversion."""
    if missing_requirement():
        raise UserError(missing_requirement())
    engine = build_engine(source, precision, **options)
    check_size(kind, precision, len(engine), source.parameters)
    return BuiltEngine(
        packed(engine, source),
        device="cuda",
        requirements={fact: [value] for fact, value in machine_facts().items()},
        batches=BATCHES,
        has_confidence=source.has_confidence,
    )


def build_engine(source: ExportSource, precision: str, **options: Any) -> bytes:
    """The core as a serialized TensorRT engine, with further options of the conversion."""
    import torch_tensorrt

    if precision == "int8":
        register_converter()
    core = source.core(precision).cuda()
    program = source.program(core, min=BATCHES[0], max=BATCHES[2])
    shapes = [
        torch_tensorrt.Input(
            **{f"{which}_shape": (batch, *tensor.shape[1:])
               for which, batch in zip(("min", "opt", "max"), PROFILE, strict=True)},
            dtype=torch.float32,
        )
        for tensor in source.example(1)
    ]  # fmt: skip
    # Torch-TensorRT's own timing cache is one file for all users and versions of this machine.
    timings = cache_file("tensorrt", tensorrt_version(), gpu_architecture(), "timings.bin")
    try:
        with private_copy(timings) as path:
            options |= {"arg_inputs": shapes, "timing_cache_path": str(path), **TUNING}
            return convert(program, **options)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"Torch-TensorRT could not build the {precision} engine: {reason(error)}"
        ) from None


def convert(program: torch.export.ExportedProgram, **options: Any) -> bytes:
    """A program as one serialized engine; raises if a part of it cannot be converted."""
    from torch_tensorrt import dynamo

    engine: bytes = dynamo.convert_exported_program_to_serialized_trt_engine(
        program, require_full_compilation=True, **options
    )
    return engine


def reason(error: BaseException) -> str:
    """The first line of what went wrong first: the errors around it quote the whole graph."""
    while error.__cause__:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else repr(error)
