"""infer --points: metric points correct a refiner's output, or the pseudo depth alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from zoerefine.cli import main
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.points import PointFiles
from zoerefine.depth.points.for_engines import corrected, points_alone_u16

SOURCES = ("--rgb", "rgb", "--depth", "zoe")
NAMES = 16


@pytest.fixture
def points(world, clips):
    """Points of the clips: one folder, made by the command."""
    assert main(["data", "points", str(world), "--out", str(clips / "given"), "--noise", "0"]) == 0
    shutil.copytree(world / habitatdyn.DEPTH, clips / "truth")
    return PointFiles(clips / "given")


@pytest.fixture
def alone(tmp_path, monkeypatch, capsys):
    """Run the command without a bundle: alone(*words) -> exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capsys.readouterr()
        return main(["infer", *words]), *capsys.readouterr()

    return run


def by_points(folder, points, correct):
    """What points make of every depth file of a folder: path -> metres * 256."""
    found = {}
    for path in sorted(Path(folder).rglob("*.png")):
        zoe, name = read_zoe(path), str(path.relative_to(folder).with_suffix(""))
        found[name] = correct(zoe, points.read(name, *zoe.shape))
    return found


def assert_depth(folder, expected):
    for name, depth in expected.items():
        np.testing.assert_array_equal(read_zoe(Path(folder) / f"{name}.png"), depth)


def test_points_correct_the_output_of_a_refiner(infer, points):
    assert infer(*SOURCES, "--out", "plain").code == 0
    done = infer(*SOURCES, "--out", "out", "--points", "given")
    assert done.code == 0, done.err
    expected = by_points("plain/depth", points, corrected)
    assert len(expected) == NAMES
    assert_depth("out/depth", expected)


def test_points_alone_correct_the_pseudo_depth_without_a_refiner(alone, points):
    drawings = ("--picture", "a.png", "--video", "a.mp4", "--colors")
    words = (*SOURCES, "--out", "out", "--points", "given", "--eval", "truth", *drawings)
    code, out, err = alone(*words)
    assert code == 0, err
    assert Path("a.png").exists() and Path("a.mp4").exists()
    assert_depth("out/depth", by_points("zoe", points, points_alone_u16))
    report = json.loads(Path("out/metrics.json").read_text())
    assert report["points"] == report["refined"]
    assert report["refined"]["abs_rel"] < 0.5 * report["pseudo"]["abs_rel"]
    assert "none: metric points alone" in Path("out/outputs.json").read_text()
    header = next(line for line in out.splitlines() if "pseudo" in line)
    assert header.split() == ["pseudo", "points", "refined", "ratio"]


def test_frames_are_corrected_again_when_their_points_change(alone, points):
    words = (*SOURCES, "--out", "out", "--points", "given")
    alone(*words)
    changed = sorted(Path("given").rglob("*.csv"))[0]
    changed.write_text("x,y,metres\n10,10,2.5\n")
    assert "1 frames refined, 15 kept" in alone(*words)[1]
    changed.unlink()
    _, out, _ = alone(*words)
    assert "1 frames refined, 15 kept" in out
    assert "1 of 16 frames have no points" in out
    name = changed.relative_to("given").with_suffix(".png")
    np.testing.assert_array_equal(read_zoe("out/depth" / name), read_zoe("zoe" / name))


def test_a_frame_with_damaged_points_is_named_and_left_out(alone, points):
    damaged = sorted(Path("given").rglob("*.csv"))[3]
    damaged.write_text("x,y,metres\n10,10,2.5\n10,10,near\n")
    code, out, err = alone(*SOURCES, "--out", "out", "--points", "given")
    assert code == 1
    assert f"{damaged} line 3: metres must be a number, got 'near'" in out + err
    assert "15 frames refined" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "give a bundle or a run, or --points"),
        (["--points", "nowhere"], "there is no folder nowhere with points"),
        (["--points", "empty"], "the first would be empty/"),
        (["--points", "given", "--confidence"], "--confidence is the refiner's own"),
        (["--points", "out/depth"], "holds results of --out out"),
    ],
)
def test_wrong_options_are_one_line(alone, points, words, line):
    for folder in ("empty", "out/depth"):
        Path(folder).mkdir(parents=True)
    if words[1:] == ["out/depth"]:
        shutil.copytree("given", "out/depth", dirs_exist_ok=True)
    code, _, err = alone(*SOURCES, "--out", "out", *words)
    assert code == 2
    assert line in err and len(err.strip().splitlines()) == 1
