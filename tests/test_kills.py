"""kill -9 at any moment of infer, bag, export and analyze: the same command then succeeds."""

import random
import shutil
from pathlib import Path

import pytest

from tests.processes import kills
from tests.verb_server import run_verb
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.exporting.bundle.bundle import load_bundle

KILLS = kills(3)


def complete(*words):
    """Run a command to its end; returns its seconds."""
    done = run_verb(words, Path.cwd())
    assert done.code == 0, done.err
    return done.seconds


def kill_and_complete(words, seconds, seed):
    """Kill the command at random moments of its usual time, then run it to its end."""
    draw = random.Random(seed)
    for _ in range(KILLS):
        run_verb(words, Path.cwd(), kill_after=draw.uniform(0.1, 1.0) * seconds)
    complete(*words)


def contents(folder):
    """Every file of a folder but empty ones, such as locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("option", ["--colors", "--stream"])
def test_infer_writes_the_same_files_after_kills(exported_run, world, tmp_path, option):
    words = ["infer", exported_run.bundle, "--rgb", world / habitatdyn.RGB,
             "--depth", world / habitatdyn.ZOE, option]  # fmt: skip
    seconds = complete(*words, "--out", tmp_path / "alone")
    kill_and_complete([*words, "--out", tmp_path / "killed"], seconds, seed=1)
    assert contents(tmp_path / "killed") == contents(tmp_path / "alone")


def test_bag_writes_the_same_bag_after_kills(exported_run, tmp_path):
    pytest.importorskip("rosbags", reason="rosbags is not installed")
    from tests.depth.ros.bags import camera, random_frames, write_bag

    words = ["bag", exported_run.bundle, write_bag(tmp_path / "in", camera(random_frames(10)))]
    seconds = complete(*words, "--out", tmp_path / "alone" / "out")
    kill_and_complete([*words, "--out", tmp_path / "killed" / "out"], seconds, seed=4)
    assert contents(tmp_path / "killed") == contents(tmp_path / "alone")


def test_analyze_writes_the_same_files_after_kills(study, tmp_path):
    seconds = complete("analyze", study.path, "--out", tmp_path / "alone")
    kill_and_complete(["analyze", study.path, "--out", tmp_path / "killed"], seconds, seed=2)
    assert contents(tmp_path / "killed") == contents(tmp_path / "alone")


@pytest.mark.parametrize("engine", ["torchscript", "onnx"])
def test_export_publishes_a_whole_bundle_after_kills(exported_run, tmp_path, engine):
    pytest.importorskip("onnx" if engine == "onnx" else "torch")
    runs = [RunDir(shutil.copytree(exported_run.path, tmp_path / name)) for name in ("a", "b")]
    for run in runs:
        shutil.rmtree(run.engine)
    words = ["--engine", engine, "--precision", "fp32"]
    seconds = complete("export", runs[0].path, *words)
    kill_and_complete(["export", runs[1].path, *words], seconds, seed=3)
    assert load_bundle(runs[1].bundle).manifest["engine"] == engine
    assert {p.name for p in runs[1].engine.iterdir()} == {p.name for p in runs[0].engine.iterdir()}
    built = [sorted(path.name for path in (run.engine / "builds").iterdir()) for run in runs]
    assert built[0] == built[1]
