"""Depth up to 80 m, from files through cache, training, export and inference to metrics."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.depth_fixtures import TINY
from zoerefine.base.config import load_config
from zoerefine.base.files.images import write_png
from zoerefine.cli import main
from zoerefine.depth.data.cache.decode import read_depth, read_zoe
from zoerefine.depth.data.depth_codec import HABITATDYN, MILLIMETRES, ZOEDEPTH, sixteen_bits
from zoerefine.depth.data.inspect.inspection import inspect
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.exporting.bundle.bundle import read_manifest
from zoerefine.depth.exporting.export import export
from zoerefine.depth.training.job import prepare, run_training

pytestmark = pytest.mark.numeric
FACTOR = 12  # how much larger than the synthetic rooms this world is


@pytest.fixture(scope="module")
def outdoors(world, tmp_path_factory):
    """A frames.csv with the world's pictures, true and pseudo depth 12 times as far."""
    root = tmp_path_factory.mktemp("outdoors")
    lines = ["clip,rgb,depth,pseudo,depth_unit_m"]
    for frame in open_dataset(world).frames:
        depth_m = read_depth(frame.depth, HABITATDYN) * (FACTOR * HABITATDYN.u16_unit_m)
        zoe_m = read_zoe(frame.zoe) * (FACTOR / 256)
        for folder, values_m in (("depth", depth_m), ("pseudo", zoe_m)):
            path = root / folder / frame.clip / f"{frame.name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_png(path, ZOEDEPTH.encode(values_m))
        name = f"{frame.clip}/{frame.name}.png"
        lines.append(f"{frame.clip},{frame.rgb},depth/{name},pseudo/{name},{1 / 256}")
    (root / "frames.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def config(outdoors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "tiny.yaml").write_text(TINY)
    return load_config(folder / "tiny.yaml", [
        "DATA.ROOT", str(outdoors), "DATA.FARTHEST_M", "80", "MODEL.TYPICAL_DEPTH_M", "29.52",
        "RUN.ROOT", str(folder / "runs"), "CACHE.ROOT", str(folder / "caches"),
        "TRAIN.EPOCHS", "1",
    ])  # fmt: skip


@pytest.fixture(scope="module")
def run(config):
    """Trained and exported."""
    made = run_training(config)
    export(made, "torchscript", "fp32")
    return made


def test_no_depth_is_cut_on_the_way_to_the_cache(outdoors, config):
    cache, _ = prepare(config)
    assert cache.farthest_m == 80
    assert max(read_zoe(frame.zoe).max() / 256 for frame in open_dataset(outdoors).frames) > 80
    for index in range(len(cache)):
        record = cache.read(index)
        assert (record["depth"] * cache.depth_scale).max() > 20
        assert (record["zoe"] * cache.zoe_scale).max() > 20
    report, _ = inspect(open_dataset(outdoors), 80.0)
    assert "faults: none" in report


def test_metrics_are_those_of_the_smaller_world(run, exported_run):
    """AbsRel and the deltas do not change with the scale of a world."""
    far, near = run.results()["test"], exported_run.results()["test"]
    for metric in ("abs_rel", "silog", "delta1"):
        assert far["pseudo"][metric] == pytest.approx(near["pseudo"][metric], rel=0.01)
    assert far["pseudo"]["rmse"] == pytest.approx(FACTOR * near["pseudo"]["rmse"], rel=0.01)
    assert {"8-16 m", "16-32 m", "32-80 m"} <= set(far["detail"]["pseudo"]["ranges"])
    assert "2-4 m" in near["detail"]["pseudo"]["ranges"]


def test_a_network_learns_as_in_the_smaller_world(run, exported_run):
    """The typical depth is 12 times as far, too, so the network sees the same numbers."""
    far, near = (
        [row["refined"]["abs_rel"] for row in one.metrics() if row["phase"] == "val"]
        for one in (run, exported_run)
    )
    assert far == pytest.approx(near, rel=0.02)


def test_a_bundle_refines_and_is_measured_up_to_80_m(run, outdoors, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    manifest = read_manifest(run.bundle)
    assert manifest["farthest_m"] == 80
    pictures = {frame.clip: frame.rgb.parent for frame in open_dataset(outdoors).frames}
    words = ["--rgb", str(next(iter(pictures.values())).parent), "--depth", f"{outdoors}/pseudo"]
    assert main(["infer", str(run.bundle), *words, "--out", "out",
                 "--eval", f"{outdoors}/depth"]) == 0  # fmt: skip
    stated = json.loads(Path("out/outputs.json").read_text())["outputs"]["depth"]
    assert stated["units"] == 256
    report = json.loads(Path("out/metrics.json").read_text())
    rows = []
    for frame in open_dataset(outdoors).frames:
        path = Path("out/depth") / frame.clip / f"{frame.name}.png"
        with Image.open(path) as image:
            assert image.info["depth-scale"] == "metres = value / 256"
        refined_m, truth_m = read_zoe(path) / 256, read_zoe(frame.depth) / 256
        assert refined_m.max() > 20
        valid = (truth_m > 1e-3) & (truth_m < 80) & (read_zoe(frame.zoe) > 0)
        errors = np.abs(refined_m.clip(1e-3, 80) - truth_m)[valid] / truth_m[valid]
        rows.append(errors.mean())
    assert report["refined"]["abs_rel"] == pytest.approx(np.mean(rows))


def test_the_16_bit_encoding_is_the_one_that_reaches_the_farthest_depth():
    assert sixteen_bits(10) == sixteen_bits(65.5) == MILLIMETRES
    assert sixteen_bits(80) == sixteen_bits(255) == ZOEDEPTH
    for farthest_m in (65.5, 255):
        encoding = sixteen_bits(farthest_m)
        values = encoding.encode(np.float64([farthest_m]))
        assert encoding.to_metres(values) == pytest.approx(farthest_m, abs=0.004)
