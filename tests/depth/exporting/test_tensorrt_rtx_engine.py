"""TensorRT for RTX: its parser and its builder, which need no GPU."""

import ctypes
import zipfile
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tests.depth.exporting.sources import random_source
from tests.processes import run_python
from zoerefine.base.errors import UserError
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.exporting.bundle.bundle import read_manifest
from zoerefine.depth.exporting.engine_kinds import Bundle, engine_kind
from zoerefine.depth.exporting.engines.tensorrt_rtx_engine import build_plan, open_plan
from zoerefine.depth.exporting.engines.torchscript_engine import archive, compile_script
from zoerefine.depth.exporting.export import export
from zoerefine.depth.exporting.onnx_graph import OUTPUTS, to_onnx
from zoerefine.depth.exporting.shipped_module import PrePostProcessing
from zoerefine.depth.exporting.verify import check_size

rtx = engine_kind("tensorrt-rtx")
pytestmark = pytest.mark.skipif(bool(rtx.missing_requirement()), reason=rtx.missing_requirement())


@pytest.fixture(scope="module")
def sources():
    """Refiners of each network with random weights. Weights are most of the UNet's engine."""
    bases = {"unet": 48}
    return {name: random_source(name, 64, 96, BASE=bases.get(name, 8)) for name in NETWORKS}


@pytest.fixture(scope="module")
def plans(sources):
    """The UNet's plans by precision."""
    source = sources["unet"]
    return {p: rtx.build(source, p).files["engine.plan"] for p in ("fp32", "fp16", "int8")}


@pytest.mark.parametrize(("name", "precision"), [("small", "int8"), ("guided", "fp16")])
def test_every_refiner_passes_the_parser_and_the_builder(sources, name, precision):
    """The UNet in every precision: `plans`."""
    built = rtx.build(sources[name], precision)
    assert built.requirements["GPU architecture"] == list(rtx.TARGETS)
    assert len(built.files["engine.plan"]) > 50_000
    assert built.batches == (1, 4, 16)


def test_low_precision_plans_are_smaller_and_one_that_is_silently_fp32_is_refused(sources, plans):
    """The builder never reports it. An fp32 plan takes the place of such a plan."""
    parameters = sources["unet"].parameters
    assert len(plans["fp32"]) > 4 * parameters
    for precision, plan in plans.items():
        check_size("tensorrt-rtx", precision, len(plan), parameters)
    for asked in ("fp16", "int8"):
        assert len(plans[asked]) < 0.6 * len(plans["fp32"])
        with pytest.raises(UserError, match=f"was asked for {asked} and silently built fp32"):
            check_size("tensorrt-rtx", asked, len(plans["fp32"]), parameters)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_onnx_graph_agrees_with_the_refiner_at_every_batch_size(sources, precision):
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    source = sources["small"]
    core = source.core(precision)
    session = runtime.InferenceSession(to_onnx(core, source), providers=["CPUExecutionProvider"])
    for batch in (1, 4, 16):
        rgb01, zoe_m = source.example(batch)
        with torch.inference_mode():
            expected = core(rgb01, zoe_m)
        found = session.run(list(OUTPUTS), {"rgb01": rgb01.numpy(), "zoe_m": zoe_m.numpy()})
        tight = {"fp32": 1e-4, "fp16": 5e-2, "int8": 5e-2}[precision]
        for one, other in zip(found, expected, strict=True):
            assert np.abs(one / other.numpy() - 1).mean() < tight


def test_a_graph_that_cannot_be_parsed_is_an_error(sources):
    with pytest.raises(UserError, match="TensorRT for RTX cannot parse the refiner"):
        build_plan(b"no onnx", sources["small"])


def test_a_plan_for_the_current_gpu_needs_a_gpu(sources):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    source = sources["small"]
    onnx = to_onnx(source.core("fp32"), source)
    with pytest.raises(UserError, match="could not build an engine for CURRENT"):
        build_plan(onnx, source, targets=("CURRENT",))


def test_a_plan_for_other_gpus_is_refused(plans):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError, match="cannot open this plan on a GPU of architecture none"):
        open_plan(plans["fp32"])


def test_a_bundle_is_built_ahead_of_time_and_refused_without_the_gpu_in_one_line(run, command):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    path = export(run, "tensorrt-rtx", "fp16")
    manifest = read_manifest(path)
    assert manifest["compared"] == "the same arithmetic in torch"
    assert 0 < manifest["max_abs_err_m"] < 0.1
    assert "latency_ms" not in manifest
    with zipfile.ZipFile(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.namelist()}
    files = ("engine.plan", "refiner.onnx", "manifest.json", "MODEL_CARD.md")
    assert {f"extra/{name}" for name in files} <= names
    done = command("infer", path, "--rgb", "a", "--depth", "b", "--out", "c", code=2)
    [line] = done.err.strip().splitlines()
    assert "built for GPU architecture sm_75 or sm_80 or sm_86" in line
    assert "this machine has GPU architecture none" in line
    assert f"zoerefine export {run.path} --engine tensorrt-rtx --precision fp16" in line


class Stream:
    """Writes down who waits for whom."""

    cuda_stream = 7

    def __init__(self, name, log):
        self.name, self.log = name, log

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """An engine that returns its pseudo depth twice, on the CPU: opened() -> forward, log, cache.

    Its objects have the methods of the real ones, and no others.
    """
    trt = rtx.bindings()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(rtx, "DEVICE", "cpu")
    saved = []
    monkeypatch.setattr(rtx.atexit, "register", saved.append)

    def load():
        log, addresses = [], {}
        monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream("engine", log))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream("caller", log))

        def run(stream):
            log.append(f"runs on stream {stream}")
            for name in OUTPUTS:
                ctypes.memmove(addresses[name], addresses["zoe_m"], 4 * 24 * 32)
            return True

        context = Mock(spec_set=trt.IExecutionContext)
        context.set_tensor_address.side_effect = addresses.__setitem__
        context.execute_async_v3.side_effect = run
        cache = Mock(spec_set=trt.IRuntimeCache)
        cache.serialize.return_value = b"kernels"
        config = Mock(spec_set=trt.IRuntimeConfig)
        config.create_runtime_cache.return_value = cache
        engine = Mock(spec_set=trt.ICudaEngine, num_io_tensors=4)
        engine.create_runtime_config.return_value = config
        engine.create_execution_context.return_value = context
        monkeypatch.setattr(rtx, "open_plan", lambda plan: engine)
        processing = archive(compile_script(PrePostProcessing(24, 32)))
        data = rtx.CONTAINER.pack(processing, {rtx.PLAN: b"plan"})
        bundle = Bundle(tmp_path / "bundle.ts", data, rtx.CONTAINER, {"device": "cpu"})
        return rtx.load(bundle), log, cache

    return load


def test_an_engine_runs_on_its_own_stream_between_the_callers_work(opened, frames):
    forward, log, _ = opened()
    once = ["engine waits for caller", "runs on stream 7", "caller waits for engine"]
    assert log == once  # it has run once when it is loaded, to compile its kernels
    rgb, zoe = (torch.from_numpy(array) for array in frames(1, 24, 32))
    depth, spread = forward(rgb, zoe)
    assert torch.equal(depth, zoe)
    assert torch.equal(spread, (zoe.float() / 256 * 10000).round().clamp(0, 65535).to(torch.uint16))
    assert log == once * 2


def test_compiled_kernels_are_kept_for_the_next_process(opened):
    _, _, cache = opened()
    cache.deserialize.assert_not_called()
    _, _, cache = opened()
    cache.deserialize.assert_called_once_with(b"kernels")


def test_without_the_package_the_error_says_how_to_install_it():
    code = (
        "import sys\nsys.modules['tensorrt_rtx_bindings'] = None\n"
        "from zoerefine.depth.exporting.engines import tensorrt_rtx_engine as engine\n"
        "engine.bindings()"
    )
    done = run_python(code)
    assert "pip install 'zoerefine[tensorrt-rtx]'" in done.stderr
