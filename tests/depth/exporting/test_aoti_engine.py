"""The aoti engine: one library for any size, compiled for many processors, loaded by torch alone.

test_engines.py has what it shares with the other kinds, test_cpp.py how a C++ program runs it.
"""

import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.depth.exporting.without_torchscript import HEIGHT, WIDTH, make_source
from tests.processes import run_program
from zoerefine.base.errors import UserError
from zoerefine.base.machine.processor import describe_processor
from zoerefine.depth.exporting.bundle.bundle import load_bundle, read_bundle, read_manifest
from zoerefine.depth.exporting.bundle.containers import PT2, container_of
from zoerefine.depth.exporting.engine_kinds import Bundle
from zoerefine.depth.exporting.engines import aoti_engine
from zoerefine.depth.exporting.shipped_module import core_of

on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
# Registers that AVX2 does not have: of 512 bits, of masks, and those numbered from 16.
BEYOND_AVX2 = re.compile(r"%(zmm|k[0-7]\b|[xy]mm(1[6-9]|[23][0-9])\b)")


# Writes a bundle's outputs for arrays in a file; prints whether the compiler's modules were loaded.
RUN = """
import sys
import numpy as np
from zoerefine.depth.exporting.bundle.bundle import load_bundle
bundle, inputs, outputs = sys.argv[1:]
engine = load_bundle(bundle)
data = np.load(inputs)
np.savez(outputs, *engine.arrays(data["rgb"], data["zoe"]))
print("torch._inductor.codecache" in sys.modules)
"""


def run_elsewhere(bundle, inputs, outputs, **env):
    """Run a bundle in a process with this environment."""
    words = [sys.executable, "-c", RUN, bundle, inputs, outputs]
    return run_program(words, None, env=os.environ | env)


@pytest.mark.numeric
@pytest.mark.parametrize("size", [(HEIGHT, WIDTH), (17, 91), (1, 1)])
@pytest.mark.parametrize("batch", [1, 16])
def test_one_graph_takes_every_size_and_batch(aoti_bundle, frames, size, batch):
    rgb, zoe = frames(batch, *size)
    zoe[:, :4] = 0
    source = make_source()
    eager = source.shipped(core_of(source.refiner)).eval()
    with torch.inference_mode():
        expected = eager(torch.from_numpy(rgb), torch.from_numpy(zoe))
    for found, wanted in zip(load_bundle(aoti_bundle).arrays(rgb, zoe), expected, strict=True):
        difference = np.abs(found.astype(int) - wanted.numpy().astype(int))
        assert difference.max() <= (1 if wanted is expected[0] else 3)


def test_pictures_that_are_not_contiguous_are_read_right(aoti_bundle, frames):
    engine = load_bundle(aoti_bundle)
    rgb, zoe = frames(4, 48, 64)
    for part in (np.s_[::2], np.s_[:, ::2], np.s_[:, :, 5:37]):
        copied = engine.arrays(rgb[part].copy(), zoe[part].copy())
        for found, expected in zip(engine.arrays(rgb[part], zoe[part]), copied, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_area_means_of_the_graph_are_torchs_bit_by_bit():
    """They are computed by another operator, which AOTInductor calls for any size."""
    program = aoti_engine.to_program(make_source(), make_source().core("fp32"), torch.device("cpu"))
    targets = {node.target for node in program.graph.nodes}
    assert torch.ops.aten.adaptive_avg_pool3d.default in targets
    assert torch.ops.aten.adaptive_avg_pool2d.default not in targets
    values = torch.rand(2, 3, 37, 91)
    expected = torch.nn.functional.adaptive_avg_pool2d(values, [HEIGHT, WIDTH])
    found = torch.ops.aten.adaptive_avg_pool3d.default(values, [3, HEIGHT, WIDTH])
    assert torch.equal(found, expected)


def library_of(path, folder):
    """The compiled library of a bundle, as a file."""
    with zipfile.ZipFile(path) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".so")]
        return Path(archive.extract(name, folder))


@on_cpu
def test_its_code_needs_no_instructions_beyond_avx2(aoti_bundle, tmp_path):
    if not shutil.which("objdump"):
        pytest.skip("objdump is not installed: apt-get install binutils")
    library = library_of(aoti_bundle, tmp_path)
    lines = run_program(["objdump", "-d", "--no-show-raw-insn", library]).stdout.splitlines()
    assert sum("%ymm" in line for line in lines) > 100  # otherwise it would not be vectorized
    assert [line for line in lines if BEYOND_AVX2.search(line)] == []
    assert BEYOND_AVX2.search("vaddps 0x40(%rax),%zmm1,%zmm2")
    assert BEYOND_AVX2.search("vmovups %xmm17,(%rax)")


@on_cpu
def test_a_processor_without_avx2_is_refused_in_one_line(aoti_bundle, tmp_path):
    assert read_manifest(aoti_bundle)["requirements"]["vector instructions"] == list(
        aoti_engine.VECTORS
    )
    done = run_elsewhere(aoti_bundle, "-", "-", ATEN_CPU_CAPABILITY="default")
    assert (
        "was built for vector instructions AVX2 or AVX512; this machine has vector instructions "
        "DEFAULT: build the right bundle"
    ) in done.stderr.splitlines()[-1]


@on_cpu
def test_nothing_can_be_built_without_avx2_or_a_compiler(run, command, monkeypatch):
    monkeypatch.setenv("CXX", "absent-compiler")
    done = command("export", run.path, "--engine", "aoti", code=2)
    assert len(done.err.splitlines()) == 1
    assert "there is no absent-compiler: apt-get install g++" in done.err
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(aoti_engine, "vector_set", lambda: "DEFAULT")
    assert "AVX2, which this machine does not have" in aoti_engine.missing_requirement()


def test_it_runs_without_a_compiler_and_without_the_compilers_modules(
    aoti_bundle, frames, tmp_path
):
    rgb, zoe = frames(1, 30, 40)
    np.savez(tmp_path / "in.npz", rgb=rgb, zoe=zoe)
    files = tmp_path / "in.npz", tmp_path / "out.npz"
    done = run_elsewhere(aoti_bundle, *files, PATH=str(tmp_path), CXX="absent-compiler")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "False\n")
    found = np.load(files[1])
    for one, expected in zip(
        found.values(), load_bundle(aoti_bundle).arrays(rgb, zoe), strict=True
    ):
        np.testing.assert_array_equal(one, expected)


def test_no_unpacked_file_is_left_while_it_runs(aoti_bundle, frames, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    engine = load_bundle(aoti_bundle)
    assert list(tmp_path.iterdir()) == []
    assert engine(*frames(1, 30, 40)).shape == (1, 30, 40)


def test_torch_before_2_13_loads_a_bundle_from_a_file(aoti_bundle, frames, monkeypatch):
    rgb, zoe = frames(2, 30, 40)
    expected = load_bundle(aoti_bundle).arrays(rgb, zoe)
    monkeypatch.setattr(aoti_engine, "TORCH", (2, 12))
    monkeypatch.setattr(aoti_engine, "unpack", lambda *words: pytest.fail("it reads no folder"))
    outputs = aoti_engine.load(read_bundle(aoti_bundle))(*map(torch.from_numpy, (rgb, zoe)))
    for found, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_library_that_torch_cannot_load_is_one_line(aoti_bundle, tmp_path):
    broken = tmp_path / "broken.pt2"
    with zipfile.ZipFile(aoti_bundle) as old, zipfile.ZipFile(broken, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"no library" if name.endswith(".so") else old.read(name))
    with pytest.raises(
        UserError, match=r"broken.pt2, built with torch 2.0, cannot be loaded by"
    ) as caught:
        aoti_engine.load(
            Bundle(broken, broken.read_bytes(), PT2, {"torch": "2.0", "device": "cpu"})
        )
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("output", "reason"), [
    ("In file included from a.cpp:1:\na.h:2: error: no space left\na.h:3: error: more",
     "a.h:2: error: no space left"),
    ("/usr/bin/ld: cannot find -lcuda: No such file\ncollect2: error: ld returned 1 exit status",
     "/usr/bin/ld: cannot find -lcuda: No such file"),
])  # fmt: skip
def test_a_compiler_that_fails_is_one_line(monkeypatch, output, reason):
    """The first error of its output is the reason."""
    from torch._inductor.exc import CppCompileError

    def fail(*args, **options):
        raise CppCompileError(["g++"], output)

    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", fail)
    with pytest.raises(UserError, match=f"aoti engine: {reason}$"):
        aoti_engine.compile_package(None, {})


@pytest.fixture
def older_torch(monkeypatch):
    """The options of torch 2.11. Its compiler would miss the others, so a stand-in takes them."""
    from torch._inductor import config

    def compile_nothing(program, package_path, inductor_configs):
        with config.patch(inductor_configs):
            package_path.write(b"package")

    for name in ("cpp.march", "aot_inductor.enable_line_tables"):
        if name in config._config:
            monkeypatch.delitem(config._config, name)
    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", compile_nothing)


def test_options_that_the_installed_torch_lacks_are_not_passed(older_torch):
    """Then the library may hold any instruction of this processor, which the manifest requires."""
    built = aoti_engine.build(make_source(), "fp32")
    assert built.content == b"package"
    assert built.requirements["processor"] == [describe_processor()]


@pytest.fixture
def gpu_at_hand(monkeypatch):
    """What a machine with a GPU, Triton and no CUDA toolkit says of itself."""
    monkeypatch.setattr(aoti_engine, "pick_device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(aoti_engine, "find_spec", lambda name: object())
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)


@on_cpu
def test_missing_cuda_headers_are_one_line(run, command, gpu_at_hand):
    done = command("export", run.path, "--engine", "aoti", code=2)
    assert len(done.err.splitlines()) == 1
    assert "aoti for a GPU needs CUDA's headers, and cuda_runtime.h was not found" in done.err
    assert "nvidia/cu13 after `pip install 'nvidia-cuda-runtime==13.0.*' 'nvidia-" in done.err


@on_cpu
def test_torch_before_2_13_builds_none_for_a_gpu(run, command, gpu_at_hand, monkeypatch):
    """An H200 with torch 2.11: the process that loaded one ended in a segmentation fault."""
    monkeypatch.setattr(aoti_engine, "TORCH", (2, 12))
    done = command("export", run.path, "--engine", "aoti", code=2)
    assert len(done.err.splitlines()) == 1
    assert "aoti for a GPU needs torch 2.13" in done.err


@on_cpu
def test_cuda_headers_without_nvcc_are_enough(gpu_at_hand, tmp_path, monkeypatch):
    """As pip installs them; each package that is absent is named."""
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(tmp_path))
    for name, package in aoti_engine.CUDA_HEADERS.items():
        assert f"{name} was not found" in aoti_engine.missing_requirement()
        assert f"pip install '{package}==13.0.*'" in aoti_engine.missing_requirement()
        (tmp_path / "include" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "include" / name).touch()
    assert aoti_engine.missing_requirement() == ""


# Beside Torch-TensorRT's sources; `make test` puts them there.
HEADERS = Path(sys.prefix) / "torch-tensorrt" / "nvidia" / "cu13" / "include"
OF_TORCH = "torch/csrc/inductor/aoti_include/cuda.h"  # what every engine for a GPU includes


def compile_header(folder):
    """The errors of a C++ compiler for torch's header, with CUDA's headers in a folder."""
    words = ["g++", "-std=c++20", "-fsyntax-only", "-DUSE_CUDA", "-x", "c++", "-"]
    words += [f"-I{one}" for one in (Path(torch.__file__).parent / "include", folder)]
    return run_program(words, None, input=f"#include <{OF_TORCH}>\n").stderr


def test_cuda_headers_that_are_asked_for_are_those_that_torchs_header_needs(tmp_path):
    if not (HEADERS / "cuda_runtime.h").exists():
        pytest.skip("CUDA's headers are not installed: see requirements-torch-tensorrt.lock")
    assert "error" not in compile_header(HEADERS)
    for number, name in enumerate(aoti_engine.CUDA_HEADERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        for path in HEADERS.iterdir():
            if path.name != name.split("/")[0]:
                (folder / path.name).symlink_to(path)
        assert f"error: {name}: No such file" in compile_header(folder)


def test_the_bundle_is_a_package_of_torch_export(aoti_bundle):
    assert container_of(aoti_bundle.read_bytes()) is PT2
    assert PT2.is_code
    with zipfile.ZipFile(aoti_bundle) as archive:
        root = archive.namelist()[0].split("/")[0]
        assert archive.read(f"{root}/archive_format") == b"pt2"
        [facts, *_] = [n for n in archive.namelist() if n.endswith("_metadata.json")]
        if not torch.cuda.is_available():
            assert json.loads(archive.read(facts))["AOTI_CPU_ISA"] == "AVX2"
