"""The engine bundle: traceable, and refused in one line if it is damaged or built for elsewhere."""

import json
import subprocess
import sys
import zipfile

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from zoerefine.base.errors import UserError
from zoerefine.depth.exporting.bundle.bundle import load_bundle, read_manifest, save_bundle, write
from zoerefine.depth.exporting.bundle.containers import TORCHSCRIPT
from zoerefine.depth.exporting.engine_kinds import BuiltEngine, engine_kind
from zoerefine.depth.exporting.engines.torchscript_engine import archive, compile_script
from zoerefine.depth.exporting.export import export
from zoerefine.depth.exporting.shipped_module import PrePostProcessing, ShippedModule
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.model import build_refiner


@pytest.fixture
def bundle(run):
    return run.bundle


def test_an_untrained_refiner_returns_its_input(frames):
    shipped = ShippedModule(
        build_refiner({"NAME": "small", "BASE": 4, "MAX_LOG": 1.0}).eval(), 24, 32
    )
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
    """And where pixels are valid, invalid ones beside them change nothing."""
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


def test_the_manifest_holds_origin_accuracy_and_latency(run, bundle):
    manifest = read_manifest(bundle)
    provenance = run.read_json(run.provenance_file)
    assert manifest["commit"] == provenance["commit"]
    assert manifest["weights"] == run.weights_digest_file.read_text().strip()
    assert (manifest["engine"], manifest["precision"]) == ("torchscript", "fp32")
    assert 0 <= manifest["max_abs_err_m"] < 0.01
    assert manifest["latency_ms"] > 0 < manifest["eager_ms"]
    assert manifest["torch"] == torch.__version__.split("+")[0]


def test_the_manifest_says_what_the_values_of_each_output_are(bundle):
    outputs = read_manifest(bundle)["outputs"]
    assert list(outputs) == ["depth", "spread"]
    assert [one["units"] for one in outputs.values()] == [256, 10000]
    assert "metres = value / 256" in outputs["depth"]["meaning"]
    assert "depth * exp(+-spread) at 90%" in outputs["spread"]["meaning"]


def test_a_bundle_without_confidence_refines_and_says_so_when_asked(tmp_path, frames):
    refiner = build_refiner({"NAME": "small", "BASE": 4, "MAX_LOG": 1.0}).eval()
    source = ExportSource(refiner, 24, 32, lambda: iter(()))
    built = engine_kind("torchscript").build(source, "fp32")
    save_bundle(built, {"engine": "torchscript", "precision": "fp32"}, tmp_path / "r.ts")
    engine = load_bundle(tmp_path / "r.ts")
    assert list(engine.manifest["outputs"]) == ["depth"]
    assert engine(*frames(2, 30, 40)).shape == (2, 30, 40)
    assert not engine.has_confidence
    with pytest.raises(UserError, match=r"no confidence: .*MODEL\.CONFIDENCE"):
        engine.with_confidence(*frames(2, 30, 40))


def test_torch_alone_can_load_it(bundle):
    code = (
        "import sys, torch; m = torch.jit.load(sys.argv[1])\n"
        "outputs = m(torch.zeros(1, 30, 40, 3, dtype=torch.uint8),"
        " torch.full((1, 30, 40), 512).to(torch.uint16))\n"
        "print(*(output.shape for output in outputs))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, bundle],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == "torch.Size([1, 30, 40]) torch.Size([1, 30, 40])", done.stderr


def test_show_prints_origin_requirements_and_the_command_that_builds_it_again(run, bundle, command):
    done = command("show", bundle)
    assert done.code == 0, done.err
    manifest = read_manifest(bundle)
    for part in (
        manifest["digest"],
        manifest["commit"],
        manifest["weights"],
        "runs here   yes",
        "output 2    spread uint16",
    ):
        assert part in done.out
    assert done.out.splitlines()[-1].strip() == (
        f"zoerefine export {run.path} --engine torchscript --precision fp32"
    )
    rewrite(bundle, lambda n, d: d + b"#" if n.endswith(".py") else d)
    done = command("show", bundle)
    assert (done.code, "was altered" in done.err) == (2, True)


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


def damage(path, how):
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-500])
    elif how == "code":
        rewrite(path, lambda n, d: d + b"#" if n.endswith(".py") else d)
    elif how == "model card":
        rewrite(path, lambda n, d: d + b"!" if n.endswith("MODEL_CARD.md") else d)
    elif how == "fact":
        rewrite(path, with_fact(commit="0" * 40))
    elif how == "manifest":
        rewrite(path, lambda n, d: b"{" if n.endswith("manifest.json") else d)
    elif how == "no manifest":
        compile_script(torch.nn.ReLU()).save(path)
    elif how == "schema":
        rewrite(path, with_fact(schema=99))
    elif how == "unknown engine":
        manifest = read_manifest(path) | {"engine": "steam"}
        write(TORCHSCRIPT, path.read_bytes(), {}, manifest, path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "there is no engine bundle"),
        ("truncated", "is a damaged engine bundle"),
        ("code", "was altered after it was built: build it again with `zoerefine export"),
        ("model card", "was altered after it was built"),
        ("fact", "was altered after it was built"),
        ("manifest", "is a damaged engine bundle"),
        ("no manifest", "is not an engine bundle, it has no manifest"),
        ("schema", "has schema 99"),
        ("unknown engine", "refiner.ts: no engine 'steam'; known: tensorrt"),
    ],
)
def test_a_damaged_bundle_is_refused_before_its_code_is_loaded(bundle, how, message):
    damage(bundle, how)
    with pytest.raises(UserError, match=message):
        load_bundle(bundle)


@pytest.mark.parametrize(
    ("engine", "requirements", "message"),
    [
        (
            "tensorrt",
            {"torch": ["2.0.1"]},
            "was built for torch 2.0.1; this machine has torch " + torch.__version__.split("+")[0],
        ),
        (
            "tensorrt",
            {"GPU architecture": ["sm_10"]},
            "was built for GPU architecture sm_10; this machine has GPU architecture",
        ),
        (
            "tensorrt",
            {"TensorRT": ["1.2.3"]},
            "was built for TensorRT 1.2.3; this machine has ",
        ),
        (
            "tensorrt-rtx",
            {"GPU architecture": ["sm_10", "sm_11"]},
            "built for GPU architecture sm_10 or sm_11",
        ),
        (
            "torchscript",
            {"device": ["tpu"]},
            "was built for device tpu; this machine has device c",
        ),
        (
            "torchscript",
            {"ONNY": ["installed"]},
            "was built for ONNY; this machine has no ONNY: ",
        ),
    ],
)
def test_a_bundle_for_another_machine_says_what_it_was_built_for(
    tmp_path, engine, requirements, message
):
    manifest = {"engine": engine, "precision": "fp32", "torch": "2.0.1", "run": "abc-def"}
    content = archive(compile_script(PrePostProcessing(24, 32)))
    built = BuiltEngine(content, requirements=requirements)
    save_bundle(built, manifest, tmp_path / "other.ts")
    with pytest.raises(UserError) as caught:
        load_bundle(tmp_path / "other.ts")
    assert message in str(caught.value)
    assert (f"`zoerefine export runs/.../abc-def --engine {engine} --precision fp32`") in str(
        caught.value
    )


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
    done = command("export", run.path, *words)
    assert done.code == 2
    assert message in done.err
    assert run.bundle.read_bytes() == before


def test_an_untrained_run_cannot_be_exported(run):
    (run.checkpoints / "best.safetensors").unlink()
    with pytest.raises(UserError, match="has no trained weights"):
        export(run)
