"""The inference command: right files, traceable, resumed, and a broken frame costs itself."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from zoerefine.data import habitatdyn
from zoerefine.data.decode import read_rgb, read_zoe
from zoerefine.export.bundle import load_bundle


@pytest.fixture
def infer(study, world, tmp_path, script):
    """Refine a copy of the world's clips; more words come last."""
    shutil.copytree(world, tmp_path / "world")

    def run(*words):
        root = tmp_path / "world"
        bundle = study.path / "best" / "engine" / "refiner.ts"
        folders = ["--rgb", root / habitatdyn.RGB, "--depth", root / habitatdyn.ZOE]
        return script("infer", bundle, *folders, "--out", "out", *words)

    return run


def test_every_frame_is_the_engines_and_says_which(infer, study, world, tmp_path):
    done = infer("--truth", world / habitatdyn.DEPTH, "--picture", "side.png")
    assert done.returncode == 0, done.stderr
    assert "16 frames refined, 0 kept, 0 left out" in done.stdout
    assert "AbsRel" in done.stdout
    engine = load_bundle(study.path / "best" / "engine" / "refiner.ts")
    outputs = sorted((tmp_path / "out").rglob("*.png"))
    assert [p.relative_to(tmp_path / "out").parts[0] for p in outputs[::4]] == [
        "0000", "0054", "0108", "0162",
    ]  # fmt: skip
    for path in outputs:
        name = path.relative_to(tmp_path / "out")
        rgb = read_rgb((world / habitatdyn.RGB / name).with_suffix(".jpg"))
        zoe = read_zoe(world / habitatdyn.ZOE / name)
        np.testing.assert_array_equal(read_zoe(path), engine(rgb[None], zoe[None])[0])
        with Image.open(path) as image:
            assert image.info["zoerefine-bundle"] == engine.digest
            assert image.info["zoerefine-commit"] == engine.manifest["commit"]
    with Image.open(tmp_path / "side.png") as image:
        assert image.size[0] > 1000


def test_a_second_run_keeps_what_is_done_and_a_lost_frame_is_made_again(infer, tmp_path):
    infer()
    outputs = sorted((tmp_path / "out").rglob("*.png"))
    stamps = [p.stat().st_mtime_ns for p in outputs[1:]]
    outputs[0].unlink()
    done = infer()
    assert "1 frames refined, 15 kept" in done.stdout
    assert [p.stat().st_mtime_ns for p in outputs[1:]] == stamps


def test_a_broken_frame_is_named_and_left_out(infer, tmp_path):
    path = tmp_path / "world" / habitatdyn.ZOE / "0054" / "00002.png"
    os.truncate(path, 60)
    done = infer()
    assert done.returncode == 1
    assert "15 frames refined, 0 kept, 1 left out" in done.stdout
    assert "0054/00002" in done.stderr
    assert not (tmp_path / "out" / "0054" / "00002.png").exists()


def test_missing_depths_and_folders_are_named_and_nothing_is_written(infer, script, tmp_path):
    (tmp_path / "world" / habitatdyn.ZOE / "0000" / "00001.png").unlink()
    done = infer()
    assert done.returncode == 2
    assert "1 of 16 pictures" in done.stderr
    assert "0000/00001" in done.stderr
    assert not (tmp_path / "out").exists()
    done = script("infer", "absent.ts", "--rgb", "x", "--depth", "y", "--out", "out")
    assert (done.returncode, "no engine bundle absent.ts" in done.stderr) == (2, True)
