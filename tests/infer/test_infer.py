"""The inference command: right files, traceable, kept while their inputs last; faults are named."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from zoerefine.cli import main
from zoerefine.data.decode import read_zoe
from zoerefine.export.bundle import load_bundle
from zoerefine.image_files import read_rgb

INFER = Path(__file__).resolve().parents[2] / "platform" / "infer.py"
FOLDERS = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")


def made(folder):
    """The refined depths of a folder, by name."""
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*.png"))}


def test_every_frame_is_the_engines_and_says_what_made_it(infer, clips, engine):
    done = infer(*FOLDERS, "--batch", "3")
    assert done.code == 0, done.err
    assert "16 frames refined, 0 kept, 0 left out, " in done.out
    assert "frames/s" in done.out
    outputs = made(clips / "out" / "depth")
    assert list(outputs)[::4] == [f"{clip}/00000.png" for clip in ("0000", "0054", "0108", "0162")]
    for name, path in outputs.items():
        rgb = read_rgb((clips / "rgb" / name).with_suffix(".jpg"))
        zoe = read_zoe(clips / "zoe" / name)
        error = read_zoe(path).astype(int) - engine(rgb[None], zoe[None])[0]
        assert np.abs(error).max() <= 1  # a batch may round otherwise
        with Image.open(path) as image:
            assert image.mode == "I;16"
            assert image.info["zoerefine-bundle"] == engine.digest
            assert image.info["zoerefine-commit"] == engine.manifest["commit"]
            assert image.info["depth-scale"] == "metres = value / 256"


def test_pictures_of_mixed_sizes_are_each_refined_as_they_would_be_alone(infer, make_pair, engine):
    few = [(48, 64), (37, 51), (48, 64), (64, 48), (37, 51), (20, 20)]
    sizes = few * 5 + [(20 + number, 50) for number in range(30)]
    for number, size in enumerate(sizes):
        make_pair(f"{number:03d}", *size, seed=number)
    done = infer(*FOLDERS, "--batch", "4")
    assert done.code == 0, done.err
    for number, size in enumerate(sizes):
        rgb, zoe = read_rgb(Path(f"rgb/{number:03d}.jpg")), read_zoe(Path(f"zoe/{number:03d}.png"))
        refined = read_zoe(Path(f"out/depth/{number:03d}.png"))
        assert refined.shape == size
        assert np.abs(refined.astype(int) - engine(rgb[None], zoe[None])[0]).max() <= 1


def test_a_second_run_keeps_what_is_done_and_a_lost_frame_is_made_again(infer, clips):
    infer(*FOLDERS)
    outputs = list(made(clips / "out" / "depth").values())
    stamps = [p.stat().st_mtime_ns for p in outputs[1:]]
    outputs[0].unlink()
    done = infer(*FOLDERS)
    assert "1 frames refined, 15 kept" in done.out
    assert [p.stat().st_mtime_ns for p in outputs[1:]] == stamps
    assert "0 frames refined, 16 kept, 0 left out\n" in infer(*FOLDERS).out


def test_what_was_made_from_other_inputs_is_made_again(infer, clips):
    infer(*FOLDERS)
    zoe = clips / "zoe" / "0054" / "00002.png"
    cv2.imwrite(str(zoe), read_zoe(zoe) // 2)
    assert "1 frames refined, 15 kept" in infer(*FOLDERS).out
    with Image.open(clips / "out/depth/0054/00002.png") as image:
        Image.fromarray(np.array(image)).save(clips / "out/depth/0054/00002.png")  # notes are lost
    assert "1 frames refined, 15 kept" in infer(*FOLDERS).out


def test_what_another_bundle_made_is_made_again(infer, clips, study, script):
    shutil.copytree(study.path / "trials" / "0001", clips / "trial")
    assert script("export", clips / "trial").returncode == 0
    other = load_bundle(clips / "trial" / "engine" / "refiner.ts")
    assert main(["infer", str(clips / "trial" / "engine" / "refiner.ts"), *FOLDERS]) == 0
    path = clips / "out" / "depth" / "0000" / "00000.png"
    with Image.open(path) as image:
        assert image.info["zoerefine-bundle"] == other.digest
    assert "16 frames refined, 0 kept" in infer(*FOLDERS).out
    with Image.open(path) as image:
        assert image.info["zoerefine-bundle"] != other.digest


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_was_cut_off_leaves_whole_files_and_the_same_command_goes_on(
    bundle, make_pair, tmp_path, wait_until, how
):
    for number in range(60):
        make_pair(f"{number:03d}", 480, 640, seed=number)
    command = [sys.executable, INFER, bundle, *FOLDERS, "--batch", "1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    depth = tmp_path / "out" / "depth"
    wait_until(lambda: len(list(depth.glob("*.png"))) > 3, process)
    process.send_signal(how)
    assert process.wait() == {signal.SIGKILL: -9, signal.SIGINT: 130}[how]
    whole = [p for p in depth.glob("*.png") if p.name[0] != "."]
    assert len(whole) < 60
    stamps = {p: p.stat().st_mtime_ns for p in whole}
    for path in whole:
        assert read_zoe(path).shape == (480, 640)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{60 - len(whole)} frames refined, {len(whole)} kept, 0 left out" in done.stdout
    assert {p: p.stat().st_mtime_ns for p in whole} == stamps


def test_broken_frames_are_named_and_left_out_and_the_others_are_refined(infer, clips, make_pair):
    os.truncate(clips / "zoe" / "0054" / "00002.png", 60)
    os.truncate(clips / "rgb" / "0108" / "00001.jpg", 500)
    (clips / "zoe" / "0000" / "00001.png").unlink()
    make_pair("0162/00003", 30, 40)
    cv2.imwrite("zoe/0162/00003.png", np.full((48, 64), 500, np.uint16))
    done = infer(*FOLDERS)
    assert done.code == 1
    assert "12 frames refined, 0 kept, 4 left out" in done.out
    for name, why in (
        ("0054/00002", "cut short"), ("0108/00001", "cut short"),
        ("0000/00001", "No such file"), ("0162/00003", "differ in size: 40x30 and 64x48"),
    ):  # fmt: skip
        assert not Path(f"out/depth/{name}.png").exists()
        line = next(line for line in done.err.splitlines() if f"left out {name}" in line)
        assert why in line


def test_colours_and_points_are_made_where_asked_for_and_when_their_settings_change(infer, clips):
    infer(*FOLDERS)
    assert not Path("out/colors").exists()
    more = ("--colors", "--points")
    assert "16 frames refined, 0 kept" in infer(*FOLDERS, *more).out
    assert "0 frames refined, 16 kept" in infer(*FOLDERS, *more).out
    near = read_rgb(clips / "out/colors/0000/00000.png")
    assert near.shape == (48, 64, 3)
    assert "16 frames refined, 0 kept" in infer(*FOLDERS, *more, "--farthest", "5").out
    assert (read_rgb(clips / "out/colors/0000/00000.png") != near).any()
    assert "16 frames refined, 0 kept" in infer(*FOLDERS, "--points", "--fov", "60").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rgb", "absent"], "no absent: give --rgb a folder, a video or a quoted pattern"),
        (["--rgb", "empty"], "empty holds no jpg or png pictures"),
        (["--rgb", "rgb/*/*.gif"], "rgb/*/*.gif holds no jpg or png pictures"),
        (["--rgb", "note.txt"], "note.txt is no video that OpenCV can play"),
        (["--depth", "absent"], "no folder absent"),
        (["--depth", "empty"], "empty has no depth for any of 16 pictures"),
        (["--eval", "empty"], "empty has no true depth for any of 16 pictures"),
        (["--out", "rgb"], "--out rgb lies in rgb, whose pictures are read"),
        (["--out", "rgb/refined"], "--out rgb/refined lies in rgb"),
        (["--out", "note.txt/out"], "nothing can be written to note.txt/out: Not a dir"),
        (["--video", "note.txt/side.mp4"], "nothing can be written to note.txt: "),
        (["--batch", "0"], "--batch must be 1 or more"),
        (["--farthest", "0"], "--farthest must be above 0"),
        (["--points", "--fov", "180"], "--fov must lie between 0 and 180"),
        (["--points", "--intrinsics", "0", "1", "2", "3"], "focal lengths are above 0"),
        (["--video", "side.avi"], "side.avi: its name must end in .mp4"),
        (["--picture", "side"], "side: its name must end in .png or"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_is_written(infer, clips, words, message):
    Path("empty").mkdir()
    Path("note.txt").write_text("not a video")
    before = sorted(clips.rglob("*"))
    done = infer(*FOLDERS, *words)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert sorted(clips.rglob("*")) == before


def test_results_are_never_written_over_what_is_read(infer, clips):
    infer(*FOLDERS)
    before = Path("out/depth/0000/00000.png").read_bytes()
    done = infer("--rgb", "rgb", "--depth", "out/depth", "--out", "out")
    assert (done.code, "out/depth holds results of --out out" in done.err) == (2, True)
    assert Path("out/depth/0000/00000.png").read_bytes() == before


def test_a_missing_bundle_is_named(script, tmp_path):
    done = script("infer", "absent.ts", "--rgb", "x", "--depth", "y", "--out", "out")
    assert (done.returncode, "no engine bundle absent.ts" in done.stderr) == (2, True)
