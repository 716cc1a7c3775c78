"""TorchScript files with an embedded TensorRT engine: saved, loaded, run; known pitfalls caught.

The engine class is a substitute in C++, compiled here, that follows Torch-TensorRT's rules for
serialized engines. Every known pitfall must give one line of ours, not a traceback of theirs.
"""

import importlib.metadata
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.depth.exporting.sources import untrained_source
from tests.depth.exporting.substitute_engine import (
    ABI,
    MANIFEST,
    TORCH,
    compiled_substitute,
    embed,
    embedded,
)
from tests.processes import run_python
from zoerefine.base.errors import UserError
from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import (
    engine_kind,
    gpu_architecture,
    unmet_requirements,
)
from zoerefine.depth.exporting.engines import tensorrt_engine as tensorrt
from zoerefine.depth.exporting.precision import quantize_int8
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.exporting.verify import check_size, compare_with_eager


@pytest.fixture(scope="session")
def library(request):
    """The substitute as a library."""
    return compiled_substitute(request.config.cache)


@pytest.fixture
def runtime(library):
    """The substitute, loaded in this process."""
    torch.ops.load_library(library)


@pytest.mark.parametrize("size", [(24, 32), (48, 64)])
def test_a_loaded_bundle_runs_at_any_batch_size(runtime, tmp_path, frames, size):
    engine = load_bundle(embed(tmp_path / "r.ts"))
    for batch in (1, 4, 16, 40):  # a batch above the largest is split
        rgb, zoe = frames(batch, *size)
        assert abs(engine(rgb, zoe).astype(int) - 2 * zoe.astype(int)).max() <= 1


@pytest.fixture
def built(runtime, monkeypatch, tmp_path):
    """The path of a bundle that a kind built, with substitutes for Torch-TensorRT: built(1).

    Its attributes `options` and `requirements` are of the last one.
    """

    def build(outputs, kind="tensorrt"):
        embedding = SimpleNamespace(
            embed_engine_in_new_module=lambda *_, output_binding_names, **__: embedded(
                outputs=len(output_binding_names)
            )
        )
        package = SimpleNamespace(ts=embedding, Device=lambda **_: None)
        monkeypatch.setitem(sys.modules, "torch_tensorrt", package)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(tensorrt, "missing_requirement", lambda: "")
        monkeypatch.setattr(tensorrt, "tensorrt_version", lambda: "11.0.0.114")

        def build_engine(*_, **options):
            build.options = options
            return b"engine"

        monkeypatch.setattr(tensorrt, "build_engine", build_engine)
        engine = engine_kind(kind).build(untrained_source(CONFIDENCE=outputs == 2), "fp32")
        build.requirements = engine.requirements
        # The manifest must not require the GPU and the TensorRT that this machine lacks.
        facts = {ABI: ["9"], "torch": [TORCH]}
        manifest = MANIFEST | {"engine": kind}
        save_bundle(replace(engine, device="cpu", requirements=facts), manifest, tmp_path / "r.ts")
        return tmp_path / "r.ts"

    return build


RUN = """
import sys, warnings
import torch
from tests.depth.exporting.run_with_gpu_fuser import frames, switch_on
from zoerefine.depth.exporting.bundle.bundle import load_bundle
warnings.simplefilter("ignore")
library, bundle, fuser = sys.argv[1:]
torch.ops.load_library(library)
if fuser == "with the GPU's fuser":
    switch_on()
engine = load_bundle(bundle)
for size in (24, 32), (48, 64), (30, 44):
    for batch in (1, 4, 16):
        for _ in range(3):
            rgb_u8, zoe_u16 = frames(batch, *size)
            depth, *spread = engine.forward(rgb_u8, zoe_u16)
            assert (depth.int() - 2 * zoe_u16.int()).abs().max() <= 1
            if spread and size == (24, 32):
                expected = zoe_u16.float() / 256 / 4 * 10000
                assert (spread[0].float() - expected).abs().max() <= 1
        fused = "TensorExprGroup" in str(torch.jit.last_executed_optimized_graph())
        assert fused == (fuser == "with the GPU's fuser")
print(len(spread) + 1, "outputs")
"""


@pytest.mark.parametrize("fuser", ["with the CPU's fuser", "with the GPU's fuser"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_built_bundle_runs_in_another_process(built, library, outputs, fuser):
    done = run_python(RUN, library, built(outputs), fuser)
    assert (done.stdout, done.returncode) == (f"{outputs} outputs\n", 0), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("kind", "options", "unmet_by"),
    [("tensorrt", {}, ["lean 11.0.0.114", "11.1.0.106", "lean 11.1.0.106"]),
     ("tensorrt-lean", {"version_compatible": True}, ["11.1.0.106", "lean 11.1.0.106"])],
)  # fmt: skip
def test_an_engine_for_the_lean_runtime_is_version_compatible(
    built, frames, kind, options, unmet_by
):
    """For the version that built it: Torch-TensorRT leaves the lean runtime out of the engine."""
    engine = load_bundle(built(1, kind))
    assert built.options == options
    wanted = {"TensorRT": built.requirements["TensorRT"]}
    versions = [
        f"{lean}{version}" for version in ("11.0.0.114", "11.1.0.106") for lean in ("", "lean ")
    ]
    unmet = [one for one in versions if unmet_requirements(wanted, {"TensorRT": one})]
    assert unmet == unmet_by
    rgb, zoe = frames(3, 24, 32)
    assert abs(engine(rgb, zoe).astype(int) - 2 * zoe.astype(int)).max() <= 1


LOAD = """
import sys
sys.path.insert(0, {folder!r})
from zoerefine.cli import run_command as run
from zoerefine.depth.exporting.bundle.bundle import load_bundle
run(lambda: load_bundle({path!r}))
"""


def test_pitfall_1_the_runtime_was_not_imported(runtime, tmp_path):
    path = embed(tmp_path / "r.ts")
    errors = run_python(f"import torch; torch.jit.load({str(path)!r})").stderr
    assert "Unknown type name '__torch__.torch.classes.tensorrt.Engine'" in errors
    [line] = run_python(LOAD.format(folder="", path=str(path))).stderr.strip().splitlines()
    assert f"was built for {ABI} 9; this machine has no {ABI}" in line
    assert "pip install 'zoerefine[tensorrt]'" in line


@pytest.mark.parametrize(
    ("abi", "facts", "message"),
    [
        ("9", {ABI: ["8"]}, f"was built for {ABI} 8; this machine has {ABI} 9: build"),
        ("9", {"TensorRT": ["10.1"]}, r"was built for TensorRT 10\.1; this machine has (no )?T"),
        ("8", {}, f"built with torch {TORCH}, cannot be loaded .*ABI"),
        ("9", {"GPU architecture": ["sm_10"]}, "was built for GPU architecture sm_10; this mach"),
    ],
)
def test_pitfalls_2_and_3_another_abi_tensorrt_or_gpu(runtime, tmp_path, abi, facts, message):
    with pytest.raises(UserError, match=message) as caught:
        load_bundle(embed(tmp_path / "r.ts", abi, **facts))
    assert "\n" not in str(caught.value)


def test_pitfall_4_a_builder_that_silently_builds_fp32():
    """The size of an engine shows it; test_tensorrt_rtx_engine.py has a real builder's."""
    parameters = 14_000_000
    check_size("tensorrt", "fp16", 2 * parameters, parameters)
    check_size("tensorrt", "fp32", 4 * parameters, parameters)
    with pytest.raises(UserError, match="asked for fp16 and silently built fp32"):
        check_size("tensorrt", "fp16", 4 * parameters, parameters)


def test_pitfall_5_a_batch_size_that_the_engine_was_not_built_for(runtime, tmp_path, frames):
    """Such a bundle is found before it is published."""
    engine = load_bundle(embed(tmp_path / "r.ts", largest=8))
    rgb, zoe = (torch.from_numpy(a) for a in frames(3, 24, 32))

    def twice(rgb_u8, zoe_u16):
        return [(zoe_u16.int() * 2).to(torch.uint16)]

    assert compare_with_eager(engine.forward, twice, rgb, zoe, (1, 4)).max_abs_err_m == 0
    with pytest.raises(UserError, match=r"does not run at batch 16: .*setting the input shape"):
        compare_with_eager(engine.forward, twice, rgb, zoe, (1, 4, 16))


def test_pitfall_6_another_type(runtime, tmp_path, frames):
    engine = load_bundle(embed(tmp_path / "r.ts"))
    rgb, zoe = (torch.from_numpy(a) for a in frames(2, 24, 32))
    with pytest.raises(UserError, match=r"takes RGB as uint8 .* not float16 \[2, 24, 32, 3\]"):
        engine.outputs(rgb.half(), zoe)


@pytest.mark.parametrize(
    ("name", "precision"),
    [("small", "fp32"), ("small", "bf16"), ("small", "fp16"), ("guided", "fp16"), ("unet", "fp16")],
)
def test_the_graph_for_torch_tensorrt_has_a_dynamic_batch_and_the_right_types(name, precision):
    source = untrained_source(name, 32, 64, BASE=8)
    core = source.core(precision)
    program = source.program(core, min=tensorrt.BATCHES[0], max=tensorrt.BATCHES[2])
    for batch in tensorrt.BATCHES:
        rgb01, zoe_m = source.example(batch)
        assert [one.shape for one in program.module()(rgb01, zoe_m)] == [zoe_m.shape] * 2
    inner = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    outputs = [
        node.meta["val"]
        for node in program.graph.nodes
        if node.op == "call_function" and "conv2d" in str(node.target)
    ]
    heads = [value for value in outputs if value.shape[1] == 1]
    assert [head.dtype for head in heads] == [torch.float32] * 2
    assert {value.dtype for value in outputs if value.shape[1] != 1} == {inner}
    assert [node.meta["val"].dtype for node in program.graph.nodes if node.op == "placeholder"][
        -2:
    ] == [torch.float32] * 2


BROKEN = """
print("searching")
raise Exception("cannot find libnvinfer.so.11\\n  Search paths: /usr")
"""


def test_an_installed_but_broken_torch_tensorrt_is_named_in_one_line(runtime, tmp_path):
    """It prints to standard output while it fails, which may be a program's result."""
    package = tmp_path / "torch_tensorrt"
    package.mkdir()
    (package / "__init__.py").write_text(BROKEN)
    code = LOAD.format(folder=str(tmp_path), path=str(embed(tmp_path / "r.ts")))
    done = run_python(code)
    assert done.stdout == ""
    [line] = done.stderr.strip().splitlines()
    assert f"{ABI} installed but broken (cannot find libnvinfer.so.11): pip install" in line


VERSIONS = """
extern "C" int getInferLibMajorVersion() { return 11; }
extern "C" int getInferLibMinorVersion() { return 1; }
extern "C" int getInferLibPatchVersion() { return 0; }
extern "C" int getInferLibBuildVersion() { return 106; }
"""
VERSION = """
import ctypes, sys
from zoerefine.depth.exporting.engines.tensorrt_engine import tensorrt_version
for path in sys.argv[1:]:
    ctypes.CDLL(path)
print(tensorrt_version())
"""


def version_with(*libraries):
    """What the version is in a process with these libraries."""
    return run_python(VERSION, *libraries).stdout.strip()


@pytest.mark.parametrize(
    ("file", "version"),
    [("libnvinfer.so.11", "11.1.0.106"), ("libnvinfer_lean.so.11", "lean 11.1.0.106")],
)
def test_the_version_is_that_of_the_loaded_library(tmp_path, file, version):
    (tmp_path / "versions.cpp").write_text(VERSIONS)
    (tmp_path / "folder with spaces").mkdir()
    library = tmp_path / "folder with spaces" / file
    subprocess.run(
        ["g++", "-shared", "-fPIC", tmp_path / "versions.cpp", "-o", library], check=True
    )
    assert version_with(library) == version


def test_without_a_library_there_is_no_version():
    assert version_with() == "not installed"


def test_a_real_library_of_tensorrt_for_rtx_says_its_version():
    libs = pytest.importorskip("tensorrt_rtx_libs", reason="TensorRT for RTX is not installed")
    [library] = Path(libs.__path__[0]).glob("libtensorrt_rtx.so*")
    expected = importlib.metadata.version("tensorrt-rtx-cu13-libs")
    assert version_with(library) == f"tensorrt_rtx {expected}"


@pytest.fixture
def conversion(monkeypatch, tmp_path):
    """Replace Torch-TensorRT's conversion by a function of its options: conversion(function)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    monkeypatch.setattr(tensorrt, "tensorrt_version", lambda: "11.0.0")
    package = SimpleNamespace(Input=lambda **_: None)
    monkeypatch.setitem(sys.modules, "torch_tensorrt", package)
    monkeypatch.setattr(ExportSource, "program", lambda source, core, **bounds: None)
    source = untrained_source(CONFIDENCE=False)

    def build(function, **more):
        monkeypatch.setattr(tensorrt, "convert", lambda program, **options: function(**options))
        return tensorrt.build_engine(source, "fp32", **more)

    return build


def add_a_timing(timing_cache_path, **_):
    """Rewrite the timing cache in place, as Torch-TensorRT does at the end of a build."""
    path = Path(timing_cache_path)
    path.write_text((path.read_text() if path.exists() else "") + "timing ")
    return b"engine"


def test_timings_are_kept_for_each_user_version_and_gpu(conversion, monkeypatch, tmp_path):
    assert conversion(add_a_timing) == conversion(add_a_timing) == b"engine"
    [path] = (tmp_path / "cache" / "zoerefine").iterdir()
    assert path.name == f"tensorrt-11.0.0-{gpu_architecture()}-timings.bin"
    assert path.read_text() == "timing timing "
    monkeypatch.setattr(tensorrt, "tensorrt_version", lambda: "11.0.1")
    conversion(add_a_timing)
    assert path.read_text() == "timing timing "


def test_a_timing_cache_that_cannot_be_written_does_not_lose_the_engine(conversion, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert conversion(add_a_timing) == b"engine"


def test_further_options_reach_the_conversion_beside_the_usual_ones(conversion):
    names = conversion(lambda **options: sorted(options), version_compatible=True)
    assert {"arg_inputs", "version_compatible", *tensorrt.TUNING} <= set(names)
    assert "version_compatible" not in conversion(lambda **options: sorted(options))


def test_a_build_that_fails_is_explained_by_what_failed_first(conversion):
    def fail(**_):
        try:
            raise RuntimeError("aten.frob is not supported\nby any converter")
        except RuntimeError as error:
            raise RuntimeError("Conversion of module GraphModule(\n  (backbone)...") from error

    with pytest.raises(UserError, match=r"fp32 engine: aten\.frob is not supported$"):
        conversion(fail)


def test_the_int8_operator_rounds_like_torchs_own():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(6, 4, 3, 3, generator=generator) * 3
    whole, channels = torch.tensor(5.0), values.abs().amax((1, 2, 3)).clamp(max=4)
    expected = torch.fake_quantize_per_tensor_affine(values, 5.0 / 127, 0, -128, 127)
    assert (quantize_int8(values, whole) - expected).abs().max() < 1e-5
    expected = torch.fake_quantize_per_channel_affine(
        values, channels / 127, torch.zeros(6, dtype=torch.int32), 0, -128, 127
    )
    found = quantize_int8(values, channels[:, None, None, None])
    assert (found - expected).abs().max() < 1e-5
    assert quantize_int8(values.half(), whole).dtype == torch.float16


def test_without_torch_tensorrt_the_error_says_what_is_missing():
    if not engine_kind("tensorrt").missing_requirement():
        pytest.skip("this machine has a GPU and Torch-TensorRT")
    with pytest.raises(UserError, match=r"NVIDIA GPU|pip install 'zoerefine\[tensorrt\]'"):
        tensorrt.build(untrained_source(), "fp16")
