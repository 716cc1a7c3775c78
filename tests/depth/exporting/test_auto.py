"""`auto`: the engine that is fastest here; one that fails is named, and the rest goes on."""

import sys

import pytest
import torch

from zoerefine.base.errors import UserError
from zoerefine.base.machine.processor import describe_processor
from zoerefine.base.registries import ENGINES
from zoerefine.depth.exporting import engine_choice
from zoerefine.depth.exporting.bundle.bundle import load_bundle, read_manifest
from zoerefine.depth.exporting.engine_choice import candidates, fastest
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.export import export

on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")

# An engine kind as an extension adds it: one module. It is TorchScript by another name.
PLUGIN = """
from zoerefine.depth.exporting.engines.torchscript_engine import *
from zoerefine.depth.exporting.engines import torchscript_engine

NAME, INSTALL, PARALLEL_CALLS = "plugin", "", False
BROKEN = []  # precisions that cannot be built

def build(source, precision):
    if precision in BROKEN:
        raise RuntimeError("the converter of another vendor crashed\\nwith many lines")
    return torchscript_engine.build(source, precision)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The module of an added kind, whose row is the first one of the registry."""
    (tmp_path / "plugin_engine.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = {"plugin": "plugin_engine", **{name: ENGINES[name] for name in ENGINES}}
    monkeypatch.setattr(ENGINES, "data", rows)
    yield engine_kind("plugin")
    del sys.modules["plugin_engine"]


def test_a_kind_needs_one_module_and_one_row(plugin, run, command):
    command("export", run.path, "--engine", "plugin", "--precision", "fp32")
    engine = load_bundle(run.bundle)
    assert engine.manifest["engine"] == "plugin"
    assert engine.parallel_calls == 1


def raising(error):
    def fail(*_):
        raise error

    return fail


@on_cpu
@pytest.mark.parametrize(
    ("before", "attribute", "value", "line"),
    [
        ([], "BROKEN", ["fp32", "bf16"],
         "plugin fp32 is left out: RuntimeError: the converter of another vendor crashed\n"),
        # As after an update of a driver, which no digest shows.
        (["fp32"], "load", raising(OSError("libvendor.so: cannot open")),
         "plugin fp32 is left out: OSError: libvendor.so"),
        ([], "allowed_for_auto", raising(RuntimeError("CUDA driver initialization failed")),
         "plugin is left out: RuntimeError: CUDA driver init"),
        ([], "allowed_for_auto", raising(ModuleNotFoundError("No module", name="vendor_ir")),
         "plugin is left out: it needs the package vendor_ir, which is not installed\n"),
    ],
    ids=["not built", "not loaded", "not looked at", "not installed"],
)  # fmt: skip
def test_a_kind_that_fails_is_named_and_the_next_one_is_published(
    plugin, run, monkeypatch, capsys, before, attribute, value, line
):
    """Also one that is kept: `before` are the precisions that were built."""
    monkeypatch.setattr(ENGINES, "data", {n: ENGINES[n] for n in ("plugin", "torchscript")})
    for precision in before:
        export(run, "plugin", precision)
        monkeypatch.setattr(plugin, "precisions", lambda: ("fp32",))
    monkeypatch.setattr(plugin, attribute, value)
    assert read_manifest(export(run))["engine"] == "torchscript"
    assert line in capsys.readouterr().err


@on_cpu
def test_a_precision_that_cannot_be_built_is_named_and_another_one_is_published(
    plugin, run, monkeypatch, capsys
):
    monkeypatch.setattr(engine_choice, "has_bf16", lambda device: True)  # a candidate anywhere
    monkeypatch.setattr(plugin, "BROKEN", ["bf16"])
    manifest = read_manifest(export(run, "plugin"))
    assert (manifest["engine"], manifest["precision"]) == ("plugin", "fp32")
    assert "plugin bf16 is left out: RuntimeError: the conv" in capsys.readouterr().err


def test_without_any_engine_the_error_names_every_reason(plugin, run, monkeypatch):
    monkeypatch.setattr(plugin, "BROKEN", ["fp32", "fp16", "bf16"])
    monkeypatch.setattr(ENGINES, "data", {"plugin": ENGINES["plugin"]})
    with pytest.raises(UserError, match=r"no engine could be built: .*plugin fp32: RuntimeError: "):
        export(run)


def test_an_engine_that_was_asked_for_and_crashes_keeps_its_traceback(plugin, run, monkeypatch):
    monkeypatch.setattr(plugin, "BROKEN", ["fp32"])
    with pytest.raises(RuntimeError, match="converter of another vendor"):
        export(run, "plugin", "fp32")


def test_a_process_in_strict_mode_exports_as_any_other(plugin, run, monkeypatch):
    """A search trains in the process in which it exports, and leaves strict mode on."""
    strict, build = [], plugin.build

    def watched(*words):
        strict.append(torch.are_deterministic_algorithms_enabled())
        return build(*words)

    monkeypatch.setattr(plugin, "build", watched)
    torch.use_deterministic_algorithms(True)
    try:
        export(run, "plugin", "fp32")
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert strict == [False]


@on_cpu
def test_kind_and_precision_are_measured_and_the_manifest_holds_the_measurement(
    bf16_built, optional_built, run, monkeypatch
):
    monkeypatch.setattr(engine_choice, "has_bf16", lambda device: True)  # a candidate anywhere
    manifest = read_manifest(export(run))
    latency_ms = manifest["choice"]["latency_ms"]
    expected = {"torchscript fp32", "torchscript bf16"}
    for kind in map(engine_kind, ("openvino", "onnx")):
        if not kind.missing_requirement():
            expected |= {f"{kind.NAME} {p}" for p in candidates(kind, "auto")}
    assert set(latency_ms) == expected
    assert manifest["choice"]["processor"] == describe_processor()
    chosen = f"{manifest['engine']} {manifest['precision']}"
    assert latency_ms[chosen] <= 1.05 * min(latency_ms.values())


@on_cpu
@pytest.mark.parametrize("winner", ["torchscript fp32", "torchscript bf16"])
def test_the_engine_that_was_fastest_here_is_published(bf16_built, run, monkeypatch, winner):
    """No AMX: bf16 is slower. With AMX it is faster."""
    monkeypatch.setattr(engine_choice, "has_bf16", lambda device: True)
    timed = lambda calls: {name: 1.0 if name == winner else 2.0 for name in calls}  # noqa: E731
    monkeypatch.setattr(engine_choice, "time_interleaved", timed)
    manifest = read_manifest(export(run, "torchscript"))
    assert f"{manifest['engine']} {manifest['precision']}" == winner


@on_cpu
def test_a_second_export_takes_the_kept_measurement_and_gives_the_same_bytes(
    bf16_built, run, monkeypatch
):
    monkeypatch.setattr(engine_choice, "has_bf16", lambda device: True)
    first = export(run, "torchscript").read_bytes()
    monkeypatch.setattr(engine_choice, "time_interleaved", None)  # measuring again would fail
    assert export(run, "torchscript").read_bytes() == first


@on_cpu
def test_emulated_bf16_and_int8_are_never_candidates_of_auto(monkeypatch):
    monkeypatch.setattr(engine_choice, "has_bf16", lambda device: False)
    for name in ("torchscript", "openvino", "onnx"):
        assert candidates(engine_kind(name), "auto") == ["fp32"]


def test_kinds_whose_build_takes_most_of_a_minute_are_left_out():
    assert not {"aoti", "tensorrt-pt2"} & {kind.NAME for kind in engine_choice.kinds_for_auto({})}
    assert engine_kind("tensorrt-pt2").missing_requirement() or torch.cuda.is_available()


def test_the_fastest_wins_and_among_equally_fast_ones_the_most_accurate():
    errors = {"fp32": 0.0, "bf16": 0.002}
    assert fastest({"fp32": 10.0, "bf16": 5.0}, errors) == "bf16"
    assert fastest({"fp32": 10.0, "bf16": 9.6}, errors) == "fp32"
    assert fastest({"fp32": 10.0, "bf16": 17.0}, errors) == "fp32"
