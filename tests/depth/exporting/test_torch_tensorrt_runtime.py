"""Torch-TensorRT's real runtime on TensorRT's lean runtime, as a robot has them, without a GPU.

What the runtime takes of torch for CUDA is a library of empty functions: none is reached before a
GPU is. What TensorRT's full libraries have beyond the lean one is added as docs/engines.md says.
"""

import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
import torch

from tests.depth.exporting.substitute_engine import compiled_substitute, embed
from tests.processes import run_program

ROOT = Path(__file__).resolve().parents[3]
PACKAGES, LEAN = Path(sys.prefix) / "torch-tensorrt", Path(sys.prefix) / "gpu-tests"
RUNTIME = PACKAGES / "torch_tensorrt" / "lib" / "libtorchtrt_runtime.so"
VERSION = "11.0.0.114"  # of the pinned lean runtime

pytestmark = [
    pytest.mark.skipif(
        not (RUNTIME.exists() and (LEAN / "tensorrt_lean_libs").is_dir()),
        reason=f"{PACKAGES} or {LEAN} is not complete: `make test` installs them",
    ),
    pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU"),
]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """A folder for LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("libraries")
    page = (ROOT / "docs" / "engines.md").read_text()
    [commands] = re.findall(r"```\n(ln -s [^`]*libnvinfer_plugin[^`]*)```", page)
    for line in commands.splitlines():
        run(line.replace("SITE_PACKAGES", shlex.quote(str(LEAN))), folder)
    for name in ("libtorch_cuda.so", "libc10_cuda.so"):
        run(f"gcc -shared -fPIC -x c - -o {name}", folder, functions_of_cuda())
    return folder


def run(command, folder, text=""):
    return run_program(["bash", "-c", command], cwd=folder, input=text).stdout


def functions_of_cuda():
    """C code of what the runtime takes of torch for CUDA."""
    listed = run(f"nm -D --undefined-only {shlex.quote(str(RUNTIME))}", ROOT)
    names = re.findall(r"\bU (_Z\w*(?:3c104cuda|2at4cuda|16ProcessGroupNCCL)\w+)", listed)
    assert len(names) > 20
    return "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in names)


PROGRAM = """
import sys
import torch
from zoerefine.base.errors import UserError
from zoerefine.depth.exporting.bundle.bundle import load_bundle
from zoerefine.depth.exporting.engines.tensorrt_engine import runtime_abi, tensorrt_version
print(runtime_abi())
print(tensorrt_version())
print([name for name in ("tensorrt", "torch_tensorrt") if name in sys.modules])
print(torch.ops.tensorrt.execute_engine.default._schema)
for path in sys.argv[1:]:
    try:
        load_bundle(path)
    except UserError as error:
        print(error, flush=True)
"""
ALLOWED = [VERSION, f"lean {VERSION}"]
# Bundles of the substitute engine: the versions of TensorRT that they allow, what the engine is
# saved with, and the error.
BUNDLES = {
    "another form": (ALLOWED, {"rest": ["0"] * 20}, "cannot be loaded .* an incompatible .* ABI$"),
    "no number": (ALLOWED, {"rest": ["AAAA"] * 9}, "cannot be loaded by torch .*: stoi$"),
    "another abi": (
        ALLOWED,
        {"abi": "8", "rest": ["0"] * 9},
        r"cannot be loaded .*different Torch-TensorRT ABI Version \(8\) than .* ABI Version \(9\)",
    ),
    "not for lean": (
        [VERSION], {}, f"built for TensorRT {VERSION}; this machine has TensorRT lean {VERSION}: ",
    ),
    "newer": (
        ["11.1.0.106", "lean 11.1.0.106"], {}, f"or lean 11.1.0.106; .* TensorRT lean {VERSION}: ",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(libraries, request, tmp_path_factory):
    """What a process without TensorRT's Python packages and full libraries prints, by line."""
    torch.ops.load_library(compiled_substitute(request.config.cache))
    folder = tmp_path_factory.mktemp("bundles")
    bundles = [
        embed(folder / f"{name}.ts", TensorRT=allowed, **saved)
        for name, (allowed, saved, _) in BUNDLES.items()
    ]
    done = load_with(libraries, *bundles)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.splitlines()


def load_with(libraries, *bundles):
    """Run the program in a process with the real runtime."""
    cudart = PACKAGES / "nvidia" / "cu13" / "lib"
    paths = {"LD_LIBRARY_PATH": f"{libraries}:{cudart}", "PYTHONPATH": f"{ROOT}:{PACKAGES}"}
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM, *bundles]
    return run_program(words, None, env=os.environ | paths)


def test_the_real_runtime_is_loaded_without_tensorrts_packages_and_full_libraries(answers):
    assert answers[:3] == ["9", f"lean {VERSION}", "[]"]


def test_its_operator_is_the_substitutes(answers):
    assert answers[3] == str(torch.ops.tensorrt.execute_engine.default._schema)


def test_its_class_refuses_other_engines_and_our_error_is_one_line(answers):
    assert len(answers) == 4 + len(BUNDLES)
    for line, (_, _, message) in zip(answers[4:], BUNDLES.values(), strict=True):
        assert re.search(message, line), line


def test_it_makes_the_engine_of_a_package_up_to_its_question_for_a_gpu(
    libraries, tensorrt_pt2_bundles
):
    """Where a GPU would be, a function of torch for CUDA comes next: ours ends the process."""
    done = load_with(libraries, tensorrt_pt2_bundles / "2.pt2")
    assert len(done.stdout.splitlines()) == 4  # no error before
    assert "[Torch-TensorRT] - Unable to read CUDA capable devices" in done.stderr
    assert done.returncode == -signal.SIGILL
