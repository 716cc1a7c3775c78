"""One suite over the engines that run on a CPU: close to eager, checked, kept, compared."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from zoerefine.config import load_config, save_config
from zoerefine.device import has_bf16
from zoerefine.errors import UserError
from zoerefine.export import KINDS
from zoerefine.export.build import EngineBuilder
from zoerefine.export.bundle import load_bundle, read_manifest
from zoerefine.export.engine_kinds import kind_of
from zoerefine.export.export import export
from zoerefine.export.shipped_module import Shipped
from zoerefine.export.verify import Accuracy, TooFarOff, check_tolerance
from zoerefine.train.checkpoint import load_refiner, save_best

EXPORT = Path(__file__).resolve().parents[2] / "platform" / "export.py"
ENGINES = [
    ("torchscript", "fp32"), ("torchscript", "bf16"),
    ("openvino", "fp32"), ("openvino", "bf16"), ("openvino", "int8"),
]  # fmt: skip
ALLOWED = {"fp32": 0.0005, "bf16": 0.01, "int8": 0.05}  # mean relative error on random noise


@pytest.fixture(scope="module", params=ENGINES, ids=" ".join)
def engine(request, builder):
    """Each engine, built once, loaded from its bundle."""
    kind, precision = kind_of(request.param[0]), request.param[1]
    if kind.lacking():
        pytest.skip(kind.lacking())
    if precision not in kind.precisions():
        pytest.skip(f"{kind.NAME} has no {precision} on this machine")
    return load_bundle(builder.bundle(kind, precision))


@pytest.mark.parametrize("size", [(24, 32), (48, 64), (37, 51), (20, 20)])
@pytest.mark.parametrize("batch", [1, 3])
def test_it_gives_what_eager_gives_at_any_size_and_batch(engine, builder, frames, size, batch):
    rgb, zoe = frames(batch, *size)
    zoe[:, :4] = 0
    eager = builder.eager(torch.device("cpu"))
    with torch.inference_mode():
        expected = eager(torch.from_numpy(rgb), torch.from_numpy(zoe)).numpy()
    refined = engine(rgb, zoe)
    assert np.abs(expected / np.maximum(zoe, 1.0) - 1)[zoe > 0].mean() > 0.05  # it does something
    assert (refined.dtype, refined.shape) == (np.uint16, zoe.shape)
    np.testing.assert_array_equal(refined == 0, zoe == 0)
    error = np.abs(refined.astype(float) - expected) / np.maximum(expected, 1)
    assert error.mean() < ALLOWED[engine.manifest["precision"]]


def test_many_threads_may_call_it_at_once(engine, frames):
    batches = [frames(2, *size, seed=k) for k in range(6) for size in ((24, 32), (48, 64))]
    alone = [engine(*batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda batch: engine(*batch), batches * 3))
    for found, expected in zip(together, alone * 3, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_its_manifest_says_how_far_it_is_and_how_fast(engine):
    made = engine.manifest
    assert made["compared"] == "the engine"
    assert made["latency_ms"] > 0 < made["eager_ms"]
    assert made["frames"] == 8
    assert made["max_abs_err_m"] >= 0
    if made["precision"] == "fp32":
        assert made["max_abs_err_m"] <= 1 / 256 + 1e-6  # one unit of the 16-bit files
    else:
        assert made["max_abs_err_m"] > 0  # it is not fp32 under another name


def test_an_engine_is_of_the_size_that_was_trained_at(best):
    cfg = load_config(best.config_file, ["LOADER.HEIGHT", "32", "LOADER.WIDTH", "48"])
    save_config(cfg, best.config_file)
    source = EngineBuilder(best).source
    assert (source.height, source.width) == (32, 48)


def test_a_change_is_carried_into_holes_of_the_pseudo_depth_undiminished():
    """What a pixel beside one without a measurement is told does not depend on the hole."""

    class Double(torch.nn.Module):
        def forward(self, rgb01, zoe_m):
            return zoe_m * 2

    zoe = torch.full((1, 48, 64), 512, dtype=torch.int32)
    zoe[:, 10:22, 20:41] = 0
    zoe = zoe.to(torch.uint16)
    rgb = torch.zeros(1, 48, 64, 3, dtype=torch.uint8)
    refined = Shipped(Double(), 24, 32)(rgb, zoe)
    assert torch.equal(refined.int(), zoe.int() * 2)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rgb, zoe: (rgb.astype(np.float32), zoe),
        lambda rgb, zoe: (rgb, zoe.astype(np.int32)),
        lambda rgb, zoe: (rgb, zoe[:, :-1]),
        lambda rgb, zoe: (rgb[0], zoe[0]),
        lambda rgb, zoe: (rgb.transpose(0, 3, 1, 2), zoe),
        lambda rgb, zoe: (rgb[:0], zoe[:0]),
    ],
)
def test_other_types_and_shapes_are_refused_in_one_line(engine, frames, wrong):
    with pytest.raises(UserError, match=r"takes RGB as uint8 \[B, H, W, 3\]"):
        engine(*wrong(*frames(2, 24, 32)))


def test_engines_of_one_refiner_have_their_own_digests(builder):
    kind = kind_of("torchscript")
    digests = {load_bundle(builder.bundle(kind, p)).digest for p in ("fp32", "bf16")}
    assert len(digests) == 2


def test_an_engine_is_built_once_and_again_when_the_weights_change(best, capsys):
    export(best, "torchscript", "fp32")
    [kept] = (best.engine / "builds").glob("*.ts")
    stamp = kept.stat().st_mtime_ns
    first = (best.engine / "refiner.ts").read_bytes()
    (best.engine / "refiner.ts").unlink()
    export(best, "torchscript", "fp32")
    assert kept.stat().st_mtime_ns == stamp
    assert (best.engine / "refiner.ts").read_bytes() == first
    assert "built before" in capsys.readouterr().err

    refiner = load_refiner(best)
    torch.nn.init.normal_(refiner.get_parameter("backbone.head.weight"), std=0.1)
    save_best(best, refiner.state_dict())
    path = export(best, "torchscript", "fp32")
    assert not kept.exists()  # nothing uses it any more
    assert read_manifest(path)["weights"] == best.weights_digest_file.read_text().strip()


def test_a_kept_engine_that_was_damaged_is_built_again(best):
    export(best, "torchscript", "fp32")
    [kept] = (best.engine / "builds").glob("*.ts")
    os.truncate(kept, 1000)
    assert load_bundle(export(best, "torchscript", "fp32"))


def test_a_killed_export_goes_on_and_never_leaves_half_a_bundle(best, tmp_path, wait_until):
    before = (best.engine / "refiner.ts").read_bytes()
    builds = best.engine / "builds"
    words = [sys.executable, EXPORT, best.path, "--engine", "torchscript", "--precision", "fp32"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_until(lambda: any(builds.glob("*torchscript*")), process)  # it is being checked
    process.kill()
    process.wait()
    assert (best.engine / "refiner.ts").read_bytes() == before
    made = read_manifest(export(best, "torchscript", "fp32"))
    assert (made["precision"], made["compared"]) == ("fp32", "the engine")
    [kept] = builds.glob("*torchscript*")  # what was begun is gone
    assert kept.suffix == ".ts"


def test_auto_takes_the_best_that_runs_here(best):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: which engine is best depends on it")
    made = read_manifest(export(best))
    assert made["engine"] == ("torchscript" if kind_of("openvino").lacking() else "openvino")
    assert made["precision"] == ("bf16" if has_bf16(torch.device("cpu")) else "fp32")


def test_too_far_from_eager_is_not_published_and_auto_goes_on(best):
    """Weights beyond bfloat16's eight bits: large numbers that cancel."""
    refiner = load_refiner(best)
    with torch.no_grad():
        *_, last = (m for m in refiner.modules() if isinstance(m, torch.nn.BatchNorm2d))
        last.bias += 300
        refiner.get_parameter("backbone.head.weight").copy_(
            torch.tensor([1.0, -1.0, 1.0, -1.0]).view(1, 4, 1, 1)
        )
    save_best(best, refiner.state_dict())
    (best.engine / "refiner.ts").unlink()
    with pytest.raises(TooFarOff, match=r"torchscript in bf16 is .* m off at the worst pixel"):
        export(best, "torchscript", "bf16")
    assert not (best.engine / "refiner.ts").exists()
    assert not list((best.engine / "builds").glob("*torchscript*"))
    assert read_manifest(export(best, "torchscript"))["precision"] == "fp32"


def test_tolerances_are_of_the_worst_pixel_and_of_the_mean():
    check_tolerance(Accuracy(0.02, 0.001, 8), "torchscript", "bf16")
    with pytest.raises(TooFarOff, match=r"0\.500 m off at the worst pixel \(allowed 0\.3\)"):
        check_tolerance(Accuracy(0.5, 0.001, 8), "torchscript", "bf16")
    with pytest.raises(TooFarOff, match=r"0\.90% on average \(allowed 0\.50%\)"):
        check_tolerance(Accuracy(0.02, 0.009, 8), "torchscript", "bf16")


def test_int8_is_calibrated_on_training_scenes_alone(builder, best):
    if kind_of("openvino").lacking():
        pytest.skip(kind_of("openvino").lacking())
    scenes = best.read_json(best.split_file)
    frames = list(EngineBuilder(best).source.calibration())
    assert len(frames) == 4 * len(scenes["train"])  # four frames a scene, and of no other scene
    assert all(rgb.shape == (1, 3, 24, 32) and zoe.shape == (1, 1, 24, 32) for rgb, zoe in frames)


def test_sweep_builds_all_and_publishes_the_fastest(best, script):
    done = script("export", best.path, "--sweep")
    assert done.returncode == 0, done.stderr
    rows = best.read_json(best.engine / "sweep.json")
    runs_here = [row for row in rows if row["latency_ms"] and row["engine"] != "eager"]
    assert len(runs_here) > 1
    names = {f"{row['engine']} {row['precision']}" for row in rows}
    for name in KINDS:
        kind = kind_of(name)
        if kind.lacking():
            assert f"left out {name}: " in done.stderr
        else:
            assert {f"{name} {p}" for p in kind.precisions()} <= names
    [chosen] = [row for row in rows if row["chosen"]]
    fastest = min(row["latency_ms"] for row in runs_here)
    as_fast = [row for row in runs_here if row["latency_ms"] <= 1.05 * fastest]
    assert chosen["mean_rel_err"] == min(row["mean_rel_err"] for row in as_fast)
    made = read_manifest(best.engine / "refiner.ts")
    assert (made["engine"], made["precision"]) == (chosen["engine"], chosen["precision"])
    assert "<- chosen" in done.stdout
    assert (best.engine / "sweep.png").stat().st_size > 10_000
