"""A substitute for Torch-TensorRT's engine class, in C++, and bundles that hold such an engine."""

from pathlib import Path

import torch

from tests.cpp_library import compiled_library
from zoerefine.depth.exporting.bundle.bundle import save_bundle
from zoerefine.depth.exporting.engine_kinds import BuiltEngine
from zoerefine.depth.exporting.engines.torchscript_engine import frozen_archive
from zoerefine.depth.exporting.shipped_module import ShippedModule

ABI = "Torch-TensorRT's engine ABI"
TORCH = torch.__version__.split("+")[0]
MANIFEST = {"engine": "tensorrt", "precision": "fp16", "torch": TORCH, "run": "abc"}


def compiled_substitute(cache):
    """The library."""
    return compiled_library(Path(__file__).with_name("engine.cpp"), cache)


def embedded(abi="9", largest=16, outputs=1, rest=()):
    """What Torch-TensorRT's `embed_engine_in_new_module` returns, with the substitute."""
    module = torch.ops.tensorrt.embed([abi, str(largest), str(outputs), *rest])
    return torch.jit._recursive.wrap_cpp_module(module)


def embed(path, abi="9", largest=16, rest=(), **more):
    """A bundle with a substitute engine of this ABI, for batches up to `largest`.

    The library must be loaded in this process. `rest`: what else the engine is saved with.
    """
    module = frozen_archive(ShippedModule(embedded(abi, largest, rest=rest), 24, 32))
    requirements = {"torch": [TORCH], ABI: ["9"], **more}
    built = BuiltEngine(module, requirements=requirements, batches=(1, 4, 16))
    save_bundle(built, MANIFEST, path)
    return path
