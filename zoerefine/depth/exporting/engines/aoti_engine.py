"""An engine compiled ahead of time to machine code, by AOTInductor and a C++ compiler.

The bundle is a `.pt2` package with one library: the network with its pre- and post-processing, for
any batch, height and width. Running it needs torch's libraries, and neither TorchScript nor a
compiler.
"""

import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export.passes import move_to_device_pass

from zoerefine.base.errors import UserError
from zoerefine.base.machine.device import pick_device
from zoerefine.base.machine.processor import describe_processor, vector_set
from zoerefine.depth.exporting.bundle.containers import PT2
from zoerefine.depth.exporting.engine_kinds import (
    BuiltEngine,
    Bundle,
    Forward,
    gpu_architecture,
    last_line,
)
from zoerefine.depth.exporting.engines.torchscript_engine import precisions
from zoerefine.depth.exporting.shipped_module import PrePostProcessing
from zoerefine.depth.exporting.source import ExportSource

NAME = "aoti"
INSTALL = ""
PARALLEL_CALLS = False  # torch's loader holds Python's global lock during a call
CONTAINER = PT2
GRAPHS = 4
TAKES_ARRAYS = False
MODEL = "model"  # the name of a package's only model
# Such as (2, 13): a library needs the release that it was compiled for.
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
MODEL_FOLDER, OBJECTS_FOLDER = f"data/aotinductor/{MODEL}", "data/constants"

# Kernels are compiled for AVX2, which x86-64 processors have had since 2013. Convolutions use what
# the processor has: they are calls of oneDNN.
VECTORS = ("AVX2", "AVX512")  # processors that have AVX2
ON_CPU = {
    "freezing": True,  # folds batch norm, fuses ReLU into oneDNN's convolutions
    "cpp.simdlen": 256,
    "cpp.vec_isa_ok": True,  # otherwise it compiles programs that try the processor
    "cpp.dynamic_threads": True,
}
ON_GPU = {"aot_inductor.embed_kernel_binary": True}  # the unpacked files are deleted after loading
# Of CUDA's headers, one of each package that torch's headers need, with pip's name of the package.
# The last two do not come with torch. nvcc is not needed: Triton has an assembler of its own.
CUDA_HEADERS = {
    "cuda_runtime.h": "nvidia-cuda-runtime",
    "crt/host_defines.h": "nvidia-cuda-crt",
    "nv/target": "nvidia-cuda-cccl",
}
ANY_PROCESSOR = "cpp.march"  # torch 2.11 and 2.12 do not have it
OPTIONS = {
    ANY_PROCESSOR: "",  # the compiler takes no further instructions of this machine
    "aot_inductor.precompile_headers": False,  # pays only from the second build on
    "aot_inductor.enable_line_tables": False,
}

__all__ = ["precisions"]


def missing_requirement() -> str:
    """Why this machine cannot build the engine; "" if it can."""
    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        return f"aoti needs a C++ compiler, and there is no {compiler}: apt-get install g++"
    if pick_device().type == "cuda":
        return missing_for_gpu()
    if vector_set() not in VECTORS:
        return "aoti builds for x86-64 processors with AVX2, which this machine does not have"
    return ""


def missing_for_gpu() -> str:
    """What building for a GPU needs and this machine lacks; "" if nothing."""
    if TORCH < (2, 13):
        return "aoti for a GPU needs torch 2.13: torch 2.11 crashes when it loads one"
    if not find_spec("triton"):
        return "aoti needs Triton: pip install triton"
    folders = cuda_include_folders()
    missing = [
        name for name in CUDA_HEADERS if not any((folder / name).exists() for folder in folders)
    ]
    if not missing:
        return ""
    cuda = str(torch.version.cuda)
    of_pip = Path(torch.__file__).parents[1] / "nvidia" / f"cu{cuda.split('.')[0]}"
    packages = " ".join(f"'{CUDA_HEADERS[name]}=={cuda}.*'" for name in missing)
    return (
        f"aoti for a GPU needs CUDA's headers, and {missing[0]} was not found: set CUDA_HOME to a "
        f"toolkit of CUDA {cuda}, or to {of_pip} after `pip install {packages}`"
    )


def cuda_include_folders() -> list[Path]:
    """Where the compiler will look for CUDA's headers."""
    from torch.utils.cpp_extension import include_paths

    try:
        given = include_paths("cuda")
    except OSError:  # it found neither CUDA_HOME nor nvcc nor /usr/local/cuda
        return []
    return [Path(folder) for folder in (*given, "/usr/include")]


def allowed_for_auto() -> bool:
    """Never: a build takes most of a minute."""
    return False


def machine_facts() -> dict[str, str]:
    """This machine's value of every fact that a bundle may require."""
    return {
        "torch": "{}.{}".format(*TORCH),
        "vector instructions": vector_set(),
        "GPU": gpu_architecture(),
        "processor": describe_processor(),
    }


def build(source: ExportSource, precision: str) -> BuiltEngine:
    """Compile the shipped module for this kind of processor or, if there is one, for the GPU.

    Raises `UserError` if the compiler fails.
    """
    device = pick_device()
    core = source.core(precision).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    # On a GPU, torch.export takes a batch of one for a case apart: convolutions ask for strides.
    program = to_program(source, core, torch.device("cpu"))
    own = {"torch": [machine_facts()["torch"]]}
    if device.type == "cpu":
        content = compile_package(program, OPTIONS | ON_CPU)
        own["vector instructions"] = list(VECTORS)
    else:
        content = compile_package(move_to_device_pass(program, str(device)), OPTIONS | ON_GPU)
        own["GPU"] = [gpu_architecture()]
    requirements = own | of_this_processor()
    return BuiltEngine(
        content, device=device.type, requirements=requirements, has_confidence=source.has_confidence
    )


def of_this_processor() -> dict[str, list[str]]:
    """The requirement of a library that may hold any instruction of this processor."""
    return {} if ANY_PROCESSOR in known(OPTIONS) else {"processor": [describe_processor()]}


class AnySizeProcessing(PrePostProcessing):
    """Resizes pictures of the core's size, too, which changes nothing: a graph has no branch."""

    def resizes(self, size: list[int]) -> bool:
        return True


def to_program(
    source: ExportSource, core: nn.Module, device: torch.device
) -> torch.export.ExportedProgram:
    """The shipped module around a core as one graph, for any batch, height and width."""
    shipped = source.shipped(core)
    shipped.processing = AnySizeProcessing(source.height, source.width)
    # Sizes of 1, equal sizes and the core's own would be taken for constants.
    batch, height, width = 2, source.height + 1, source.width + 2
    rgb_u8 = torch.zeros(batch, height, width, source.channels, dtype=torch.uint8, device=device)
    zoe_u16 = torch.zeros(batch, height, width, dtype=torch.uint16, device=device)
    sizes = {
        i: torch.export.Dim(name, min=1) for i, name in enumerate(("batch", "height", "width"))
    }
    with torch.no_grad():
        program = torch.export.export(
            shipped.eval().to(device), (rgb_u8, zoe_u16), dynamic_shapes=(sizes, sizes)
        )
    pool_by_library(program.graph)
    return program


def pool_by_library(graph: torch.fx.Graph) -> None:
    """Let torch's own kernel compute area means, of [B, C, H, W] as of a volume of depth C.

    AOTInductor would write a kernel for the example's height and width only; for volumes it calls
    torch's, which gives the same bits.
    """
    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.adaptive_avg_pool2d.default):
        values, size = node.args
        node.target = aten.adaptive_avg_pool3d.default
        node.args = (values, [values.meta["val"].shape[1], *size])


def known(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the installed torch has; it refuses any other."""
    from torch._inductor import config

    names = config.get_config_copy()
    return {name: value for name, value in options.items() if name in names}


def compile_package(program: torch.export.ExportedProgram, options: dict[str, Any]) -> bytes:
    """The bytes of a `.pt2` package. Raises `UserError` if the compiler fails."""
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.exc import CppCompileError
    from torch._inductor.utils import fresh_cache

    package, problem = io.BytesIO(), ""
    # Temporary files in a folder of their own: torch's is shared and is never emptied.
    with torch.no_grad(), fresh_cache():
        try:
            aoti_compile_and_package(program, package_path=package, inductor_configs=known(options))
        except CppCompileError as error:
            problem = first_error(str(error).splitlines())
    if problem:
        raise UserError(f"the C++ compiler could not build the aoti engine: {problem}")
    return package.getvalue()


def first_error(lines: Sequence[str]) -> str:
    """The first line of a compiler's or a linker's output that names an error."""
    named = (line.strip() for line in lines if "error:" in line or "cannot find" in line)
    return next(named, lines[-1] if lines else "")


def load(bundle: Bundle) -> Forward:
    """The forward function of a bundle.

    Raises `UserError` if torch cannot load it.
    """
    on_gpu = bundle.manifest["device"] == "cuda"
    index = torch.cuda.current_device() if on_gpu else -1
    # On a GPU torch's own order of calls would let each wait for the last one, and could not be
    # captured in a CUDA graph. Here one call is queued at a time.
    alone = on_gpu
    # Not torch._inductor.aoti_load_package: it tries a C++ compiler first, for a warning.
    with tempfile.TemporaryDirectory(prefix="zoerefine-") as folder:
        try:
            loader = torch._C._aoti.AOTIModelPackageLoader(
                str(package_for_loader(bundle.data, Path(folder))), MODEL, alone, 1, index
            )
        except (OSError, RuntimeError, ValueError) as error:  # ValueError: of an engine class
            raise UserError(
                f"{bundle.path}, built with torch {bundle.manifest['torch']}, cannot be loaded by "
                f"torch {torch.__version__} from the temporary folder {tempfile.gettempdir()}: "
                f"{last_line(error)}"
            ) from None

    def forward(rgb_u8: Tensor, zoe_u16: Tensor) -> list[Tensor]:
        # The library does not look at strides.
        outputs: list[Tensor] = loader.run([rgb_u8.contiguous(), zoe_u16.contiguous()])
        return outputs

    return forward


def package_for_loader(data: bytes, folder: Path) -> Path:
    """A package in a form that torch's loader reads while it is created.

    It can read a folder since torch 2.13; one that it unpacks itself stays until the process ends.
    """
    if TORCH >= (2, 13):
        return unpack(data, folder)
    path = folder / "package.pt2"
    path.write_bytes(data)
    return path


def unpack(data: bytes, folder: Path) -> Path:
    """The folder of a package's files.

    The loader looks for objects beside the library, where torch's own unpacking puts them.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        root = archive.namelist()[0].split("/")[0]
        model = folder / root / MODEL_FOLDER
        model.mkdir(parents=True)
        for name in archive.namelist():
            parent, file = name.rsplit("/", 1)
            if parent in (f"{root}/{MODEL_FOLDER}", f"{root}/{OBJECTS_FOLDER}"):
                (model / file).write_bytes(archive.read(name))
    return folder / root
