"""Triton kernels of `aoti` engines, written and compiled to machine code of GPUs that are not here.

    python compile_for_gpus.py TRITON GUARD SAME ARCHITECTURE... < cases.json > report.json

TRITON is a folder with the package; GUARD a library that lets torch without CUDA compute with fake
CUDA tensors. A case names a network and a precision. AOTInductor lowers each bundle as for an H100,
and Triton, with its own assembler, compiles every kernel for every architecture, such as 90, once
for all cases: kernels of the `same` text, or of one that differs in `numbers` (sizes, and which of
the 16-bit types). What needs a GPU is left out: choosing among configurations, linking, running.
"""

import ctypes
import importlib.util
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.export.passes import move_to_device_pass

CUDA = torch.device("cuda", 0)
HEIGHT, WIDTH = 48, 64
H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132,
    total_memory=80 * 2**30, regs_per_multiprocessor=65536, warp_size=32, L2_cache_size=50 * 2**20,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, gcnArchName="",
    shared_memory_per_block=49152, shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472, is_integrated=0, is_multi_gpu_board=0, uuid="0",
)  # fmt: skip
# What Inductor asks of a GPU, before its modules are imported: they keep these functions.
ANSWERS = {
    "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
    "get_device_properties": H100, "get_device_capability": (9, 0), "get_device_name": H100.name,
    "is_bf16_supported": True, "set_device": None, "synchronize": None, "_lazy_init": None,
    "_exchange_device": 0, "_maybe_exchange_device": 0, "get_rng_state": torch.zeros(16).byte(),
    "set_rng_state": None,
}  # fmt: skip
# Weights have no values here.
WITHOUT_GPU = {
    "joint_graph_constant_folding": False, "triton.autotune_at_compile_time": False,
    "aot_inductor.package_constants_in_so": False, "compile_threads": 1,
}  # fmt: skip
NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)?\b")
KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)'''", re.DOTALL)


def answer_as_a_gpu():
    """Replace what only a GPU can answer."""
    for name, value in ANSWERS.items():
        setattr(torch.cuda, name, lambda *_, value=value, **__: value)


class Driver:
    """Triton's driver, as far as it is asked before a kernel is started."""

    def __init__(self, target):
        self.get_current_target = lambda: target

    def get_active_torch_device(self):
        return CUDA


def to_fake_gpu(program):
    """The program with fake CUDA tensors in the place of its own."""
    placeholder = next(iter(program.graph.nodes))
    mode = placeholder.meta["val"].fake_mode
    for values in (program._state_dict, program._constants):
        values.update({name: mode.from_tensor(value) for name, value in values.items()})
    (rgb_u8, zoe_u16), named = program.example_inputs
    program._example_inputs = (mode.from_tensor(rgb_u8), mode.from_tensor(zoe_u16)), named
    with mode:
        return move_to_device_pass(program, str(CUDA))


class Written(BaseException):
    """The code of a whole call; nothing comes after it here."""


def write_python(graph):
    """In the place of C++ code: its kernels are the same, and can be read."""
    graph.cpp_wrapper = False
    code, _ = graph.codegen()
    raise Written(code.value if hasattr(code, "value") else code)


def written(network, precision):
    """Inductor's code of a bundle's call on a GPU."""
    from torch._inductor import graph
    from torch._inductor.fx_passes import fuse_attention
    from torch._subclasses.fake_tensor import FakeTensor

    from zoerefine.depth.exporting.engines import aoti_engine
    from zoerefine.depth.exporting.source import ExportSource
    from zoerefine.depth.model import build_refiner

    model = {"NAME": network, "BASE": 16, "MAX_LOG": 1.0, "CONFIDENCE": True}
    source = ExportSource(build_refiner(model).eval(), HEIGHT, WIDTH, lambda: iter(()))
    core = source.core(precision).to(memory_format=torch.channels_last)
    program = to_fake_gpu(aoti_engine.to_program(source, core, torch.device("cpu")))
    graph.GraphLowering.codegen_with_cpp_wrapper = write_python
    graph.is_same_tensor = lambda one, other: one is other  # fake tensors have no addresses
    # Inductor writes small weights into the code. Here all of them are the same.
    FakeTensor.tolist = lambda one: np.full(tuple(one.shape), 0.5).tolist()
    FakeTensor.item = lambda one: 0.5
    fuse_attention._sfdp_init = lambda *_: None  # its patterns are traced on a GPU; we have none
    options = aoti_engine.OPTIONS | aoti_engine.ON_GPU | WITHOUT_GPU
    try:
        aoti_engine.compile_package(program, options)
    except Written as code:
        return str(code)
    raise AssertionError("Inductor wrote no code")


def without_numbers(kernel):
    """Its text without sizes, and with one 16-bit type for both."""
    return NUMBER.sub("", kernel.replace("bfloat16", "float16").replace("bf16", "fp16"))


def tuner_of(name, source, folder):
    """A kernel with its configurations, from its source."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def compiled(tuner, architecture):
    """The assembler text of a kernel for an architecture."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    tuner.device_props = tuner.device_props._replace(cc=architecture, major=architecture // 10)
    config = tuner.configs[0]
    meta = tuner._create_compile_meta(config)
    source = ASTSource(tuner.fn, meta["signature"], meta["constants"], meta["configs"][0])
    options = tuner._create_compile_options(config, meta)
    kernel = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    return kernel.asm["ptx"]


def main(triton_folder, guard, same, *architectures):
    sys.path.append(triton_folder)
    ctypes.CDLL(guard)
    answer_as_a_gpu()
    import triton
    from torch._inductor.runtime import triton_helpers
    from triton.backends.compiler import GPUTarget

    triton_helpers.set_driver_to_gpu = lambda: None  # there is none; every kernel asks for it
    triton.runtime.driver.set_active(Driver(GPUTarget("cuda", 90, 32)))
    known, report = set(), {"kernels": {}, "calls": {}, "targets": {}, "failed": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder  # otherwise it compiles nothing the second time
        for network, precision in json.load(sys.stdin):
            code = written(network, precision)
            kernels = KERNEL.findall(code)
            case = f"{network} {precision}"
            report["kernels"][case] = len(kernels)
            calls = code[code.index("def call(") :]
            report["calls"][case] = sorted(
                set(re.findall(r"(?:extern_kernels|torch\.ops\.\w+)\.[\w.]+(?=\()", calls))
            )
            for name, source in kernels:
                text = source.replace(name, "kernel")
                key = without_numbers(text) if same == "numbers" else text
                if key in known:
                    continue
                known.add(key)
                tuner = tuner_of(name, source.replace("\\'\\'\\'", "'''"), Path(folder))
                for architecture in architectures:
                    try:
                        assembler = compiled(tuner, int(architecture))
                    except Exception as error:
                        report["failed"].append(f"{case} {name} {architecture}: {error!r}"[:300])
                        continue
                    [target] = re.findall(r"\.target (sm_\d+)", assembler)
                    report["targets"][target] = report["targets"].get(target, 0) + 1
    report["different"] = len(known)
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
