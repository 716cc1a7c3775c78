"""The engine bundle: close to eager, at any size, traceable, and refused when it is not whole."""

import json
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

from zoerefine.device import has_bf16
from zoerefine.errors import UserError
from zoerefine.export.bundle import load_bundle, read_manifest
from zoerefine.export.export import export
from zoerefine.export.module import Shipped
from zoerefine.export.verify import Accuracy, check_tolerance
from zoerefine.model import build_refiner
from zoerefine.run_dir import RunDir
from zoerefine.train.checkpoint import load_refiner


@pytest.fixture
def best(study, tmp_path):
    """A copy of the best run, to export from at will."""
    shutil.copytree(study.path / "best", tmp_path / "best")
    return RunDir(tmp_path / "best")


@pytest.fixture
def bundle(best):
    return best.engine / "refiner.ts"


def frames(batch, height, width, seed=0):
    rng = np.random.default_rng(seed)
    rgb = rng.integers(0, 256, (batch, height, width, 3)).astype(np.uint8)
    zoe = rng.integers(100, 2000, (batch, height, width)).astype(np.uint16)
    return rgb, zoe


@pytest.mark.parametrize("size", [(24, 32), (48, 64), (37, 51), (20, 20)])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_engine_gives_what_eager_gives_at_any_size_and_batch(best, bundle, size, batch):
    rgb, zoe = frames(batch, *size)
    zoe[:, :4] = 0
    eager = Shipped(load_refiner(best), 24, 32).eval()
    with torch.inference_mode():
        expected = eager(torch.from_numpy(rgb), torch.from_numpy(zoe)).numpy()
    refined = load_bundle(bundle)(rgb, zoe)
    assert (refined.dtype, refined.shape) == (np.uint16, zoe.shape)
    np.testing.assert_array_equal(refined == 0, zoe == 0)
    error = np.abs(refined.astype(float) - expected) / np.maximum(expected, 1)
    assert error.mean() < 0.01


def test_an_untrained_refiner_ships_its_input(best):
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
    assert made["max_abs_err_m"] < 0.3
    assert made["latency_ms"] > 0 < made["eager_ms"]
    assert made["torch"] == torch.__version__.split("+")[0]


def test_fp32_is_as_good_as_exact(best):
    made = read_manifest(export(best, "torchscript", "fp32"))
    assert made["precision"] == "fp32"
    assert made["max_abs_err_m"] <= 1 / 256 + 1e-6  # one unit of the 16-bit files


def test_torch_alone_can_load_it(bundle):
    code = (
        "import sys, torch; m = torch.jit.load(sys.argv[1])\n"
        "print(m(torch.zeros(1, 30, 40, 3, dtype=torch.uint8),"
        " torch.full((1, 30, 40), 512).to(torch.uint16)).shape)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, bundle],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.strip() == "torch.Size([1, 30, 40])", done.stderr


def rewrite(path, change):
    """Write the archive anew with one member's bytes changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, change(name, data))


def damage(path, how):
    if how == "gone":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-500])
    elif how == "code":
        rewrite(path, lambda n, d: d + b"#" if n.endswith(".py") else d)
    elif how == "manifest":
        rewrite(path, lambda n, d: b"{" if n.endswith("manifest.json") else d)
    elif how == "no manifest":
        torch.jit.script(torch.nn.ReLU()).save(path)
    elif how == "schema":
        change = lambda n, d: json.dumps(json.loads(d) | {"schema": 99}).encode()  # noqa: E731
        rewrite(path, lambda n, d: change(n, d) if n.endswith("manifest.json") else d)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("gone", "no engine bundle"),
        ("truncated", "is no whole engine bundle"),
        ("code", "was altered"),
        ("manifest", "is no whole engine bundle"),
        ("no manifest", "has no manifest"),
        ("schema", "has schema 99"),
    ],
)
def test_what_is_not_whole_is_refused_before_its_code_is_loaded(bundle, how, message):
    damage(bundle, how)
    with pytest.raises(UserError, match=message):
        load_bundle(bundle)


def test_a_tensorrt_bundle_says_what_is_missing_here(bundle):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: nothing is missing")
    change = lambda n, d: json.dumps(json.loads(d) | {"engine": "tensorrt"}).encode()  # noqa: E731
    rewrite(bundle, lambda n, d: change(n, d) if n.endswith("manifest.json") else d)
    with pytest.raises(UserError, match="needs an NVIDIA GPU and none is here"):
        load_bundle(bundle)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "tensorrt"], "needs an NVIDIA GPU"),
        (["--precision", "fp16"], "torchscript has no precision 'fp16'"),
    ],
)
def test_engines_that_cannot_be_built_here_are_named(best, script, words, message):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: nothing is missing")
    before = (best.engine / "refiner.ts").read_bytes()
    done = script("export", best.path, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert (best.engine / "refiner.ts").read_bytes() == before


def test_an_untrained_run_cannot_be_exported(best, script):
    (best.checkpoints / "best.safetensors").unlink()
    done = script("export", best.path)
    assert (done.returncode, "has no trained weights" in done.stderr) == (2, True)


def test_an_engine_too_far_from_eager_is_not_shipped():
    check_tolerance(Accuracy(0.02, 0.001, 8), "bf16")
    with pytest.raises(UserError, match=r"0\.500 m off at the worst pixel"):
        check_tolerance(Accuracy(0.5, 0.001, 8), "bf16")
