"""The engine bundle: traceable, and refused in one line if it is damaged or built for elsewhere."""

import json
import os
import sys
import zipfile

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.depth.exporting.sources import untrained_source
from tests.processes import run_program
from zoerefine.base.errors import UserError
from zoerefine.base.machine.device import make_deterministic
from zoerefine.depth.exporting.bundle.bundle import (
    load_bundle,
    of_this_gpu,
    read_manifest,
    save_bundle,
    write,
)
from zoerefine.depth.exporting.bundle.containers import TORCHSCRIPT
from zoerefine.depth.exporting.engine_kinds import BuiltEngine, engine_kind
from zoerefine.depth.exporting.engines.torchscript_engine import archive, compile_script
from zoerefine.depth.exporting.shipped_module import PrePostProcessing, ShippedModule


def test_an_untrained_refiner_returns_its_input(frames):
    shipped = ShippedModule(untrained_source(CONFIDENCE=False).refiner, 24, 32)
    for size in ((24, 32), (48, 64), (31, 45)):
        rgb, zoe = (torch.from_numpy(a) for a in frames(2, *size))
        with torch.inference_mode():
            [refined] = shipped(rgb, zoe)
            assert torch.equal(refined.int(), zoe.int())


class Operations(TorchDispatchMode):
    """Notes what torch computes; what only looks at a tensor in another way does not count."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if not operation.is_view and "empty" not in operation.name():
            self.names.append(operation.name())
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("size", [(24, 32), (48, 64), (31, 45)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_call_takes_at_most_25_operations_beside_the_network(frames, size, outputs):
    """A GPU takes longer to start each of them than to compute it."""
    processing = PrePostProcessing(24, 32)
    rgb, zoe = (torch.from_numpy(a) for a in frames(2, *size))
    with torch.inference_mode(), Operations() as found:
        _, zoe_m = processing.before(rgb, zoe)
        processing.after(zoe, zoe_m, [zoe_m] * outputs)
    assert 5 < len(found.names) <= 25, found.names


def test_without_valid_pixels_around_depth_stays_and_its_spread_is_unknown():
    """And where pixels are valid, invalid ones beside them change nothing.

    A spread beyond the range of its units is the largest value.
    """
    processing = PrePostProcessing(2, 2)
    zoe = torch.zeros(1, 8, 8, dtype=torch.int32)
    zoe[:, :4, :4], zoe[:, 7, 7] = 512, 256  # one core pixel is valid; a lone pixel is too little
    zoe_u16 = zoe.to(torch.uint16)
    rgb = torch.zeros(1, 8, 8, 3, dtype=torch.uint8)
    _, zoe_m = processing.before(rgb, zoe_u16)
    assert zoe_m[0, 0].tolist() == [[2.0, 0.0], [0.0, 0.0]]
    depth, spread = processing.after(zoe_u16, zoe_m, [zoe_m * 1.5, zoe_m * 0 + 0.25])
    assert (depth[0, :4, :4].int() == 768).all()
    assert (spread[0, :4, :4].int() == 2500).all()
    assert (depth[0, 7, 7].item(), spread[0, 7, 7].item()) == (256, 65535)
    invalid = zoe_u16.int() == 0
    assert not depth.int()[invalid].any()
    assert not spread.int()[invalid].any()
    _, wide = processing.after(zoe_u16, zoe_m, [zoe_m, zoe_m * 0 + 9])
    assert (wide.int()[~invalid] == 65535).all()


TORCH = torch.__version__.split("+")[0]


@pytest.fixture
def bundle(run):
    return run.bundle


def test_the_manifest_holds_the_origin_and_the_meaning_of_each_output(run, bundle):
    manifest = read_manifest(bundle)
    provenance = run.read_json(run.provenance_file)
    assert manifest["commit"] == provenance["commit"]
    assert manifest["weights"] == run.weights_digest_file.read_text().strip()
    assert manifest["torch"] == TORCH
    outputs = manifest["outputs"]
    assert list(outputs) == ["depth", "spread"]
    assert [one["units"] for one in outputs.values()] == [256, 10000]
    assert "metres = value / 256" in outputs["depth"]["meaning"]
    assert "depth * exp(+-spread) at 90%" in outputs["spread"]["meaning"]


def test_a_bundle_without_confidence_refines_and_says_so_when_asked(tmp_path, frames):
    built = engine_kind("torchscript").build(untrained_source(CONFIDENCE=False), "fp32")
    save_bundle(built, {"engine": "torchscript", "precision": "fp32"}, tmp_path / "r.ts")
    engine = load_bundle(tmp_path / "r.ts")
    assert list(engine.manifest["outputs"]) == ["depth"]
    assert engine(*frames(2, 30, 40)).shape == (2, 30, 40)
    assert not engine.has_confidence
    with pytest.raises(UserError, match=r"no confidence: .*MODEL\.CONFIDENCE"):
        engine.require_confidence()


def test_torch_alone_can_load_it(bundle):
    code = (
        "import sys, torch\n"
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "m = torch.jit.load(sys.argv[1], map_location=device)\n"
        "torch.set_default_device(device)\n"
        "outputs = m(torch.zeros(1, 30, 40, 3, dtype=torch.uint8),"
        " torch.full((1, 30, 40), 512).to(torch.uint16))\n"
        "print(*(output.shape for output in outputs))"
    )
    done = run_program([sys.executable, "-W", "ignore", "-c", code, bundle])
    assert done.stdout.strip() == "torch.Size([1, 30, 40]) torch.Size([1, 30, 40])"


def test_show_prints_origin_requirements_and_the_command_that_builds_it_again(run, bundle, command):
    done = command("show", bundle)
    manifest = read_manifest(bundle)
    facts = [manifest[name] for name in ("digest", "commit", "weights")]
    for part in (*facts, "runs here   yes", "output 2    spread uint16"):
        assert part in done.out
    assert done.out.splitlines()[-1].strip() == (
        f"zoerefine export {run.path} --engine torchscript --precision fp32"
    )
    altered(".py")(bundle)
    done = command("show", bundle, code=2)
    assert "was altered" in done.err


def rewrite(path, change):
    """Write the archive again with one member's bytes changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, change(name, data))


def with_fact(**facts):
    """A change of the manifest."""

    def change(name, data):
        if not name.endswith("manifest.json"):
            return data
        return json.dumps(json.loads(data) | facts).encode()

    return change


def with_unknown_engine(path):
    manifest = read_manifest(path) | {"engine": "steam"}
    write(TORCHSCRIPT, path.read_bytes(), {}, manifest, path)


def altered(end, change=lambda data: data + b"#"):
    """A damage: other bytes of the members whose names end so."""
    return lambda path: rewrite(path, lambda n, d: change(d) if n.endswith(end) else d)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "there is no engine bundle"),
        (lambda path: os.truncate(path, path.stat().st_size - 500), "is a damaged engine bundle"),
        (altered(".py"), "was altered after it was built: build it again with `zoerefine export"),
        (altered("MODEL_CARD.md"), "was altered after it was built"),
        (lambda path: rewrite(path, with_fact(commit="0" * 40)), "was altered after it was built"),
        (altered("manifest.json", lambda data: b"{"), "is a damaged engine bundle"),
        (lambda path: compile_script(torch.nn.ReLU()).save(path), "is not an engine bundle, it"),
        (lambda path: rewrite(path, with_fact(schema=99)), "has schema 99"),
        (with_unknown_engine, "refiner.ts: no engine 'steam'; known: tensorrt"),
    ],
)
def test_a_damaged_bundle_is_refused_before_its_code_is_loaded(bundle, damage, message):
    damage(bundle)
    with pytest.raises(UserError, match=message):
        load_bundle(bundle)


@pytest.mark.parametrize(
    ("engine", "fact", "values", "message"),
    [
        ("tensorrt", "torch", ["2.0.1"], f"torch 2.0.1; this machine has torch {TORCH}"),
        ("tensorrt", "TensorRT", ["1.2.3"], "TensorRT 1.2.3; this machine has "),
        ("tensorrt-rtx", "GPU architecture", ["sm_10", "sm_11"],
         "GPU architecture sm_10 or sm_11; this machine has GPU architecture"),
        ("torchscript", "device", ["tpu"], "device tpu; this machine has device c"),
        ("torchscript", "ONNY", ["installed"], "ONNY; this machine has no ONNY: "),
        ("aoti", "torch", ["2.0"], "torch 2.0; this machine has torch 2."),
    ],
)  # fmt: skip
def test_a_bundle_for_another_machine_says_what_it_was_built_for(
    tmp_path, engine, fact, values, message
):
    manifest = {"engine": engine, "precision": "fp32", "torch": "2.0.1", "run": "abc-def"}
    content = archive(compile_script(PrePostProcessing(24, 32)))
    save_bundle(BuiltEngine(content, requirements={fact: values}), manifest, tmp_path / "other.ts")
    with pytest.raises(UserError) as caught:
        load_bundle(tmp_path / "other.ts")
    assert f"was built for {message}" in str(caught.value)
    build = f"`zoerefine export runs/.../abc-def --engine {engine} --precision fp32`"
    assert build in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "tensorrt"], "needs an NVIDIA GPU"),
        (["--engine", "torchscript", "--precision", "int8"], "torchscript has no precision 'int8'"),
        (["--sweep", "--engine", "torchscript"], "--sweep tries every engine"),
    ],
)
def test_an_engine_that_cannot_be_built_is_an_error_that_says_why(run, command, words, message):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: nothing is missing")
    before = run.bundle.read_bytes()
    done = command("export", run.path, *words, code=2)
    assert message in done.err
    assert run.bundle.read_bytes() == before
    (run.checkpoints / "best.safetensors").unlink()
    assert "has no trained weights" in command("export", run.path, code=2).err


def test_convolutions_are_timed_in_calls_on_a_gpu_but_never_in_deterministic_work(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    found = []

    def forward(*_):
        found.append(torch.backends.cudnn.benchmark)
        return []

    timed, device = of_this_gpu(forward, 0)
    assert device == torch.device("cuda", 1)
    try:
        for strict in (True, False):
            make_deterministic(0, strict)
            torch.backends.cudnn.benchmark = False
            timed(torch.zeros(1), torch.zeros(1))
            assert not torch.backends.cudnn.benchmark  # the process has its own setting again
        assert found == [False, True]
    finally:
        make_deterministic(0, False)
        torch.backends.cudnn.benchmark = False
