"""The engine bundle: traceable, and refused in one line when it is not whole or does not fit."""

import json
import subprocess
import sys
import zipfile

import pytest
import torch

from zoerefine.device import has_bf16
from zoerefine.errors import UserError
from zoerefine.export.bundle import load_bundle, read_manifest, save_bundle
from zoerefine.export.engine_kinds import Built
from zoerefine.export.engines.torchscript_engine import script
from zoerefine.export.export import export
from zoerefine.export.shipped_module import PrePostProcessing, Shipped
from zoerefine.model import build_refiner


@pytest.fixture
def bundle(best):
    return export(best, "torchscript")


def test_an_untrained_refiner_ships_its_input(frames):
    shipped = Shipped(build_refiner("small", 4, 1.0).eval(), 24, 32)
    for size in ((24, 32), (48, 64), (31, 45)):
        rgb, zoe = (torch.from_numpy(a) for a in frames(2, *size))
        with torch.inference_mode():
            assert torch.equal(shipped(rgb, zoe).int(), zoe.int())


def test_the_manifest_says_where_it_came_from_and_how_far_it_is(best, bundle):
    made = read_manifest(bundle)
    known = best.read_json(best.provenance_file)
    assert made["commit"] == known["commit"]
    assert made["weights"] == best.weights_digest_file.read_text().strip()
    assert made["engine"] == "torchscript"
    assert made["precision"] == ("bf16" if has_bf16(torch.device("cpu")) else "fp32")
    assert 0 < made["max_abs_err_m"] < 0.3
    assert made["latency_ms"] > 0 < made["eager_ms"]
    assert made["torch"] == torch.__version__.split("+")[0]


def test_torch_alone_can_load_it(bundle):
    code = (
        "import sys, torch; m = torch.jit.load(sys.argv[1])\n"
        "print(m(torch.zeros(1, 30, 40, 3, dtype=torch.uint8),"
        " torch.full((1, 30, 40), 512).to(torch.uint16)).shape)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, bundle],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == "torch.Size([1, 30, 40])", done.stderr


def test_show_prints_where_a_bundle_came_from_and_how_to_make_it_again(best, bundle, script_of):
    done = script_of("show", bundle)
    assert done.returncode == 0, done.stderr
    made = read_manifest(bundle)
    for part in (made["digest"], made["commit"], made["weights"], "fits here   yes"):
        assert part in done.stdout
    assert done.stdout.splitlines()[-1].strip() == (
        f"python platform/export.py {best.path} --engine torchscript --precision "
        f"{made['precision']}"
    )
    rewrite(bundle, lambda n, d: d + b"#" if n.endswith(".py") else d)
    done = script_of("show", bundle)
    assert (done.returncode, "was altered" in done.stderr) == (2, True)


def rewrite(path, change):
    """Write the archive anew with one member's bytes changed."""
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
    if how == "gone":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-500])
    elif how == "code":
        rewrite(path, lambda n, d: d + b"#" if n.endswith(".py") else d)
    elif how == "claim":
        rewrite(path, with_fact(commit="0" * 40))
    elif how == "manifest":
        rewrite(path, lambda n, d: b"{" if n.endswith("manifest.json") else d)
    elif how == "no manifest":
        script(torch.nn.ReLU()).save(path)
    elif how == "schema":
        rewrite(path, with_fact(schema=99))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("gone", "no engine bundle"),
        ("truncated", "is no whole engine bundle"),
        ("code", "was altered after it was made: make it again with `python platform/export.py"),
        ("claim", "was altered after it was made"),
        ("manifest", "is no whole engine bundle"),
        ("no manifest", "has no manifest"),
        ("schema", "has schema 99"),
    ],
)
def test_what_is_not_whole_is_refused_before_its_code_is_loaded(bundle, how, message):
    damage(bundle, how)
    with pytest.raises(UserError, match=message):
        load_bundle(bundle)


@pytest.mark.parametrize(
    ("engine", "needs", "message"),
    [
        (
            "tensorrt",
            {"torch": ["2.0.1"]},
            f"was built for torch 2.0.1; here is torch {torch.__version__.split('+')[0]}",
        ),
        (
            "tensorrt",
            {"GPU architecture": ["sm_10"]},
            "was built for GPU architecture sm_10; here is GPU architecture",
        ),
        ("tensorrt", {"TensorRT": ["1.2.3"]}, "was built for TensorRT 1.2.3; here is TensorRT"),
        (
            "tensorrt-rtx",
            {"GPU architecture": ["sm_10", "sm_11"]},
            "built for GPU architecture sm_10 or sm_11",
        ),
        ("torchscript", {"device": ["tpu"]}, "was built for device tpu; here is device c"),
    ],
)
def test_a_bundle_for_another_machine_says_what_it_was_built_for(tmp_path, engine, needs, message):
    made = {"engine": engine, "precision": "fp32", "torch": "2.0.1", "run": "abc-def"}
    save_bundle(Built(script(PrePostProcessing(24, 32)), needs=needs), made, tmp_path / "other.ts")
    with pytest.raises(UserError) as caught:
        load_bundle(tmp_path / "other.ts")
    assert message in str(caught.value)
    assert (
        f"`python platform/export.py runs/.../abc-def --engine {engine} --precision fp32`"
    ) in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "tensorrt"], "needs an NVIDIA GPU"),
        (["--engine", "torchscript", "--precision", "int8"], "torchscript has no precision 'int8'"),
        (["--sweep", "--engine", "torchscript"], "--sweep tries every engine"),
    ],
)
def test_engines_that_cannot_be_built_here_are_named(best, bundle, script, words, message):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: nothing is missing")
    before = bundle.read_bytes()
    done = script("export", best.path, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert bundle.read_bytes() == before


def test_an_untrained_run_cannot_be_exported(best, script):
    (best.checkpoints / "best.safetensors").unlink()
    done = script("export", best.path)
    assert (done.returncode, "has no trained weights" in done.stderr) == (2, True)
