"""An inference overwrites only files that an inference has written, and only keeps whole ones."""

import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from zoerefine.base.files.images import write_png
from zoerefine.depth.data.cache.decode import read_zoe

FOLDERS = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")
ALL = ("--colors", "--clouds", "--confidence", "--eval", "true")
DRAWINGS = ("side.png", "side.jpg", "side.svg", "side.pdf")

RESULTS = (
    "out/depth/a/0.png",
    "out/confidence/a/0.png",
    "out/colors/a/0.png",
    "out/clouds/a/0.ply",
    "out/metrics.json",
    "out/outputs.json",
)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", RESULTS)
def test_no_kind_of_result_overwrites_a_foreign_file(infer, make_pair, tmp_path, name):
    make_pair("a/0")
    make_pair("a/1", seed=1)
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    if path.suffix == ".png":
        cv2.imwrite(str(path), np.full((48, 64), 1234, np.uint16))
    else:
        path.write_text("ply\nof another program\n" if path.suffix == ".ply" else '{"mine": 1}')
    before = contents(tmp_path)
    done = infer(*FOLDERS, *ALL, code=2)
    assert done.err.count("\n") == 1
    assert f"{name} was not written by zoerefine and would be overwritten: move it" in done.err
    assert contents(tmp_path) == before


OLDER = "was written by an earlier version of zoerefine or another program"
KEYS = (
    ({"name": "my results", "digest": "abc", "mine": [1, 2]}, "was not written by zoerefine"),
    ({"bundle": "b", "commit": "c", "outputs": {}}, OLDER),
    (dict.fromkeys(["frames", "left_out", "pseudo", "refined", "ratio"], 0), OLDER),
)


@pytest.mark.parametrize("name", RESULTS[4:])
@pytest.mark.parametrize(("keys", "whose"), KEYS)
def test_keys_that_another_program_may_use_are_no_mark(
    infer, make_pair, tmp_path, name, keys, whose
):
    make_pair("a/0")
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text(json.dumps(keys))
    done = infer(*FOLDERS, *ALL, code=2)
    assert f"{name} {whose} and would be overwritten: move it" in done.err
    assert json.loads(path.read_text()) == keys


@pytest.mark.parametrize("name", [*DRAWINGS, "side.mp4"])
def test_drawings_and_videos_are_overwritten_only_if_they_are_ours(infer, make_pair, name):
    make_pair("0")
    option = "--video" if name.endswith("mp4") else "--picture"
    words = (*FOLDERS, option, name)
    Path(name).write_bytes(b"the user's own file")
    done = infer(*words, code=2)
    assert done.err.count("\n") == 1
    assert f"{name} was not written by zoerefine" in done.err
    assert f"or give another {option}" in done.err
    assert Path(name).read_bytes() == b"the user's own file"
    assert not Path("out").exists()
    Path(name).unlink()
    for _ in range(2):
        done = infer(*words)


def test_a_foreign_file_of_a_frame_that_was_not_known_before_is_kept(
    infer, make_video, tmp_path, monkeypatch
):
    video = make_video("a.mp4", frames=3)
    for number in range(3):
        write_png(tmp_path / "zoe" / f"{number:06d}.png", np.full((48, 64), 500, np.uint16))
    foreign = tmp_path / "out" / "depth" / "000002.png"
    write_png(foreign, np.full((48, 64), 1234, np.uint16))
    # A stream without a length.
    monkeypatch.setattr("zoerefine.depth.infer.sources.VideoFile.names", [])
    done = infer("--rgb", video, "--depth", "zoe", "--out", "out", code=2)
    assert "000002.png was not written by zoerefine" in done.err
    assert (read_zoe(foreign) == 1234).all()


def test_zoedepths_output_never_overwrites_a_foreign_file(infer, make_pair, tmp_path):
    make_pair("0")
    foreign = tmp_path / "out" / "zoe_depth_raw" / "0.png"
    foreign.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "zoe" / "0.png", foreign)
    before = foreign.read_bytes()
    done = infer("--rgb", "rgb", "--out", "out", "--depth-model", "absent", code=2)  # not loaded
    assert "zoe_depth_raw/0.png was not written by zoerefine" in done.err
    assert foreign.read_bytes() == before


def cut(path):
    os.truncate(path, 300 if path.suffix == ".png" else 500)


def hole(path):
    data = path.read_bytes()
    path.write_bytes(data[:-60] + bytes(40) + data[-20:])


@pytest.mark.parametrize(
    ("name", "damage"),
    [(name, cut) for name in RESULTS[:4]] + [(name, hole) for name in RESULTS[:3]],
)
def test_a_damaged_result_is_not_kept(infer, make_pair, name, damage):
    make_pair("a/0", height=96, width=128)
    make_pair("a/1", seed=1)
    words = (*FOLDERS, "--colors", "--clouds", "--confidence")
    infer(*words)
    path = Path(name)
    before = path.read_bytes()
    damage(path)
    kept = 2 if "colors" in name else 1  # colours are drawn anew from the kept depth
    assert f"{2 - kept} frames refined, {kept} kept" in infer(*words).out
    assert path.read_bytes() == before


def test_a_pattern_whose_results_would_leave_the_folder_is_refused(infer, make_pair):
    make_pair("a/0")
    done = infer("--rgb", "rgb/*/../../rgb/a/*.jpg", "--depth", "zoe", "--out", "out", code=2)
    assert done.err.count("\n") == 1
    assert "whose result would leave the folder of --out" in done.err
    assert not Path("out").exists()


def test_parts_of_drawings_that_a_killed_command_left_are_removed_and_nothing_else(
    infer, make_pair
):
    make_pair("0")
    ours = [Path(".s[1].png.0123abcd.tmp"), Path(".v.mp4.12345678.tmp")]
    others = [".s1.png.0123abcd.tmp", ".v.mp4.notours_.tmp", "out/.b.zip.12345678.tmp"]
    others = [Path(name) for name in others]
    for path in (*ours, *others):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"part")
    infer(*FOLDERS, "--picture", "s[1].png", "--video", "v.mp4")
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in others)
