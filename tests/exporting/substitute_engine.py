"""A substitute for Torch-TensorRT's engine class, in C++, and bundles that hold such an engine."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths, library_paths

from zoerefine.exporting.bundle import save_bundle
from zoerefine.exporting.engine_kinds import BuiltEngine
from zoerefine.exporting.engines.torchscript_engine import archive, compile_script
from zoerefine.exporting.shipped_module import ShippedModule
from zoerefine.files import digest_file, digest_json, replacing

ABI = "Torch-TensorRT's engine ABI"
TORCH = torch.__version__.split("+")[0]
MANIFEST = {"engine": "tensorrt", "precision": "fp16", "torch": TORCH, "run": "abc"}


def compiled_substitute(cache):
    """The library, compiled against torch's headers; kept in pytest's cache."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine, which compiles the substitute engine")
    source = Path(__file__).with_name("engine.cpp")
    digest = digest_json([torch.__version__, torch.__file__, digest_file(source)])[:16]
    path = Path(cache.mkdir("tensorrt-substitute")) / f"{digest}.so"
    if not path.exists():
        folders = [f"-I{folder}" for folder in include_paths()]
        flags = ["-std=c++20", "-O0", "-fPIC", "-shared"]
        libraries = [*(f"-L{folder}" for folder in library_paths()), "-ltorch_cpu", "-lc10"]
        with replacing(path) as temporary:
            words = ["g++", *flags, *folders, source, "-o", temporary, *libraries]
            done = subprocess.run(words, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
    return path


class Core(torch.nn.Module):
    """What Torch-TensorRT's `embed_engine_in_new_module` returns, with the substitute."""

    def __init__(self, abi="9", largest=16):
        super().__init__()
        self.engine = torch.classes.tensorrt.Engine([abi, str(largest)])

    def forward(self, rgb01: torch.Tensor, zoe_m: torch.Tensor) -> torch.Tensor:
        return torch.ops.tensorrt.execute_engine([rgb01, zoe_m], self.engine)[0]


def embed(path, abi="9", largest=16, **more):
    """A bundle with a substitute engine of this ABI, for batches up to `largest`.

    The library must be loaded in this process.
    """
    module = archive(compile_script(ShippedModule(Core(abi, largest), 24, 32)))
    requirements = {"torch": [TORCH], ABI: ["9"], **more}
    built = BuiltEngine(module, requirements=requirements, batches=(1, 4, 16))
    save_bundle(built, MANIFEST, path)
    return path
