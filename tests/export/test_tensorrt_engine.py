"""The file with an embedded TensorRT engine, with a stand-in for the engine class: saved, loaded,
run, and each of the known pitfalls answered in one line of ours."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths, library_paths

from zoerefine.errors import UserError
from zoerefine.export.bundle import load_bundle, save_bundle
from zoerefine.export.engine_kinds import Built, ExportSource, kind_of
from zoerefine.export.engines import tensorrt_engine as tensorrt
from zoerefine.export.engines.torchscript_engine import script
from zoerefine.export.shipped_module import Shipped
from zoerefine.export.verify import check_size, compare
from zoerefine.model import build_refiner

ABI = "Torch-TensorRT's engine ABI"
TORCH = torch.__version__.split("+")[0]
MADE = {"engine": "tensorrt", "precision": "fp16", "torch": TORCH, "run": "abc"}


@pytest.fixture(scope="session")
def runtime(tmp_path_factory):
    """The stand-in as a library, compiled against torch's own headers."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here: the stand-in engine cannot be compiled")
    library = tmp_path_factory.mktemp("runtime") / "libstandin.so"
    folders = [f"-I{folder}" for folder in include_paths()]
    source = Path(__file__).with_name("engine.cpp")
    flags = ["-std=c++20", "-O0", "-fPIC", "-shared"]
    libraries = [*(f"-L{folder}" for folder in library_paths()), "-ltorch_cpu", "-lc10"]
    done = subprocess.run(["g++", *flags, *folders, source, "-o", library, *libraries],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return library


@pytest.fixture
def loaded(runtime):
    """The stand-in, in this process."""
    torch.ops.load_library(runtime)


class Core(torch.nn.Module):
    """What Torch-TensorRT's `embed_engine_in_new_module` makes, without its engine."""

    def __init__(self, abi="9", largest=16):
        super().__init__()
        self.engine = torch.classes.tensorrt.Engine([abi, str(largest)])

    def forward(self, rgb01: torch.Tensor, zoe_m: torch.Tensor) -> torch.Tensor:
        return torch.ops.tensorrt.execute_engine([rgb01, zoe_m], self.engine)[0]


def embed(path, abi="9", largest=16, **needs):
    """A bundle with a stand-in engine of some ABI that runs up to some batch."""
    module = script(Shipped(Core(abi, largest), 24, 32))
    built = Built(module, needs={"torch": [TORCH], ABI: ["9"], **needs}, batches=(1, 4, 16))
    save_bundle(built, MADE, path)
    return path


@pytest.mark.parametrize("size", [(24, 32), (48, 64)])
def test_saved_and_loaded_it_runs_at_any_batch(loaded, tmp_path, frames, size):
    engine = load_bundle(embed(tmp_path / "r.ts"))
    for batch in (1, 4, 16, 40):  # what is above the engine's largest goes in parts
        rgb, zoe = frames(batch, *size)
        assert abs(engine(rgb, zoe).astype(int) - 2 * zoe.astype(int)).max() <= 1


def test_pitfall_1_the_runtime_was_not_imported(loaded, tmp_path):
    path = embed(tmp_path / "r.ts")
    theirs = in_a_new_process(f"import torch; torch.jit.load({str(path)!r})")
    assert "Unknown type name '__torch__.torch.classes.tensorrt.Engine'" in theirs
    ours = in_a_new_process(
        "from zoerefine.errors import run_command as run\n"
        "from zoerefine.export.bundle import load_bundle\n"
        f"run(lambda: load_bundle({str(path)!r}))"
    )
    [line] = ours.strip().splitlines()
    assert f"was built for {ABI} 9; here is {ABI} not installed" in line
    assert "pip install 'zoerefine[tensorrt]'" in line


def in_a_new_process(code):
    """Its standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True
    )
    return done.stderr


def test_pitfall_2_another_abi_or_tensorrt(loaded, tmp_path):
    path = embed(tmp_path / "r.ts", **{ABI: ["8"]})
    with pytest.raises(UserError, match=f"was built for {ABI} 8; here is {ABI} 9: build the right"):
        load_bundle(path)
    with pytest.raises(UserError, match=r"was built for TensorRT 10\.15\.1; here is TensorRT"):
        load_bundle(embed(tmp_path / "r.ts", TensorRT=["10.15.1"]))


def test_pitfall_2_an_engine_of_another_abi_than_its_manifest_says(loaded, tmp_path):
    path = embed(tmp_path / "r.ts", abi="8")
    with pytest.raises(UserError, match=f"built with torch {TORCH}, cannot be loaded") as caught:
        load_bundle(path)
    assert "ABI" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pitfall_3_another_gpu(loaded, tmp_path):
    path = embed(tmp_path / "r.ts", **{"GPU architecture": ["sm_10"]})
    with pytest.raises(UserError, match="was built for GPU architecture sm_10; here is GPU arch"):
        load_bundle(path)


def test_pitfall_4_fp32_in_silence():
    """Its engines' size tells; the real builder's is in test_tensorrt_rtx.py."""
    parameters = 14_000_000
    check_size("tensorrt", "fp16", 2 * parameters, parameters)
    check_size("tensorrt", "fp32", 4 * parameters, parameters)
    with pytest.raises(UserError, match="asked for fp16 and built fp32 without a word"):
        check_size("tensorrt", "fp16", 4 * parameters, parameters)


def test_pitfall_5_a_shape_that_the_engine_was_not_built_for(loaded, tmp_path, frames):
    """A bundle that promises more than its engine runs is found before it is published."""
    engine = load_bundle(embed(tmp_path / "r.ts", largest=8))
    rgb, zoe = (torch.from_numpy(a) for a in frames(3, 24, 32))

    def twice(rgb_u8, zoe_u16):
        return (zoe_u16.int() * 2).to(torch.uint16)

    assert compare(engine.run, twice, rgb, zoe, (1, 4)).max_abs_err_m == 0
    with pytest.raises(UserError, match=r"does not run at batch 16: .*setting the input shape"):
        compare(engine.run, twice, rgb, zoe, (1, 4, 16))


def test_pitfall_6_another_type(loaded, tmp_path, frames):
    engine = load_bundle(embed(tmp_path / "r.ts"))
    rgb, zoe = (torch.from_numpy(a) for a in frames(2, 24, 32))
    with pytest.raises(UserError, match=r"takes RGB as uint8 .* not float16 \[2, 24, 32, 3\]"):
        engine.refine(rgb.half(), zoe)


@pytest.mark.parametrize("name", ["small", "guided", "unet"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_what_torch_tensorrt_is_given_has_a_dynamic_batch_and_the_asked_types(name, precision):
    source = ExportSource(build_refiner(name, 8, 1.0).eval(), 64, 96, lambda: iter(()))
    core = tensorrt.in_precision(source.refiner, precision, source.calibration)
    program = tensorrt.export_program(core, source)
    for batch in tensorrt.BATCHES:
        rgb01, zoe_m = source.example(batch)
        assert program.module()(rgb01, zoe_m).shape == zoe_m.shape
    inner = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    made = [
        node.meta["val"]
        for node in program.graph.nodes
        if node.op == "call_function" and "conv2d" in str(node.target)
    ]
    [head] = (value for value in made if value.shape[1] == 1)
    assert head.dtype == torch.float32
    assert {value.dtype for value in made if value is not head} == {inner}
    assert [node.meta["val"].dtype for node in program.graph.nodes if node.op == "placeholder"][
        -2:
    ] == [torch.float32] * 2


def test_without_it_the_message_says_what_is_missing():
    if not kind_of("tensorrt").lacking():
        pytest.skip("this machine has a GPU and Torch-TensorRT")
    with pytest.raises(UserError, match=r"NVIDIA GPU|pip install 'zoerefine\[tensorrt\]'"):
        tensorrt.build(
            ExportSource(build_refiner("small", 4, 1.0), 24, 32, lambda: iter(())), "fp16"
        )
