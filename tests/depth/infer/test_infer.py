"""The inference command: right and traceable files, kept until their inputs change."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from zoerefine.base.files.images import read_rgb, read_values
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.exporting.bundle.bundle import copy_bundle, read_bundle, read_manifest

INFER = Path(__file__).resolve().parents[3] / "platform" / "infer.py"
FOLDERS = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")


def written(folder):
    """The refined depth files of a folder, by name."""
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*.png"))}


def test_every_frame_is_what_the_engine_returns_and_has_its_provenance(infer, clips, engine):
    done = infer(*FOLDERS, "--batch", "3")
    assert "16 frames refined, 0 kept, 0 left out, " in done.out
    assert "frames/s" in done.out
    outputs = written(clips / "out" / "depth")
    assert list(outputs)[::4] == [f"{clip}/00000.png" for clip in ("0000", "0054", "0108", "0162")]
    for name, path in outputs.items():
        rgb = read_rgb((clips / "rgb" / name).with_suffix(".jpg"))
        zoe = read_zoe(clips / "zoe" / name)
        error = read_zoe(path).astype(int) - engine(rgb[None], zoe[None])[0]
        assert np.abs(error).max() <= 1  # rounding depends on the batch size
        with Image.open(path) as image:
            assert image.mode == "I;16"
            assert image.info["zoerefine-bundle"] == engine.digest
            assert image.info["zoerefine-commit"] == engine.manifest["commit"]
            assert image.info["depth-scale"] == "metres = value / 256"


def test_threads_that_start_after_an_inference_use_as_many_cores_as_before(infer, clips):
    """A training in such a thread would otherwise have other sums, so other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        infer(*FOLDERS)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


def test_pictures_of_mixed_sizes_are_refined_as_each_would_be_alone(infer, make_pair, engine):
    few = [(48, 64), (37, 51), (48, 64), (64, 48), (37, 51), (20, 20)]
    sizes = few * 5 + [(20 + number, 50) for number in range(30)]
    for number, size in enumerate(sizes):
        make_pair(f"{number:03d}", *size, seed=number)
    infer(*FOLDERS, "--batch", "4")
    for number, size in enumerate(sizes):
        rgb, zoe = read_rgb(Path(f"rgb/{number:03d}.jpg")), read_zoe(Path(f"zoe/{number:03d}.png"))
        refined = read_zoe(Path(f"out/depth/{number:03d}.png"))
        assert refined.shape == size
        assert np.abs(refined.astype(int) - engine(rgb[None], zoe[None])[0]).max() <= 1


def test_a_second_run_keeps_finished_frames_and_refines_missing_and_changed_ones(infer, clips):
    infer(*FOLDERS)
    outputs = list(written(clips / "out" / "depth").values())
    modified = [p.stat().st_mtime_ns for p in outputs[1:]]
    outputs[0].unlink()
    done = infer(*FOLDERS)
    assert "1 frames refined, 15 kept" in done.out
    assert [p.stat().st_mtime_ns for p in outputs[1:]] == modified
    assert "0 frames refined, 16 kept, 0 left out\n" in infer(*FOLDERS).out
    zoe = clips / "zoe" / "0054" / "00002.png"
    cv2.imwrite(str(zoe), read_zoe(zoe) // 2)
    assert "1 frames refined, 15 kept" in infer(*FOLDERS).out


def test_results_of_another_bundle_are_refined_again(infer, alone, clips, bundle, engine):
    other = clips / "other.ts"
    copy_bundle(read_bundle(bundle), other, {"run": "another"}, {})
    alone(other, *FOLDERS)
    path = clips / "out" / "depth" / "0000" / "00000.png"
    with Image.open(path) as image:
        assert image.info["zoerefine-bundle"] == read_manifest(other)["digest"] != engine.digest
    assert "16 frames refined, 0 kept" in infer(*FOLDERS).out
    with Image.open(path) as image:
        assert image.info["zoerefine-bundle"] == engine.digest


# Reading the picture 5 waits for a file `go`, so that the command can be stopped in the middle.
WAITING = """
import sys, time
from pathlib import Path
from zoerefine.depth.infer import sources

file_bytes = sources.file_bytes

def waiting(path):
    while path.stem == "5" and not Path("go").exists():
        time.sleep(0.01)
    return file_bytes(path)

sources.file_bytes = waiting
from zoerefine.cli import main
sys.exit(main(["infer", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_command_leaves_complete_files_and_continues(
    infer, bundle, make_pair, tmp_path, wait_until, how
):
    for number in range(8):
        make_pair(f"{number}", seed=number)
    words = [sys.executable, "-c", WAITING, bundle, *FOLDERS, "--batch", "1"]
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    files = [tmp_path / "out" / "depth" / f"{number}.png" for number in range(5)]
    wait_until(lambda: all(path.exists() for path in files), process)
    process.send_signal(how)
    if how == signal.SIGINT:
        (tmp_path / "go").touch()
    assert process.wait() == {signal.SIGKILL: -9, signal.SIGINT: 130}[how]
    modified = [path.stat().st_mtime_ns for path in files]
    for path in files:
        assert read_zoe(path).shape == (48, 64)
    done = infer(*FOLDERS)
    kept = int(re.search(r"refined, (\d+) kept, 0 left out", done.out)[1])
    assert kept >= 5
    assert [path.stat().st_mtime_ns for path in files] == modified


LEFTOVERS = (
    "depth/.0.png.0123abcd.tmp",
    "colors/a/.1.png.89abcdef.tmp",
    "clouds/.2.ply.00000000.tmp",
    "zoe_depth_raw/.3.png.11111111.tmp",
    ".metrics.json.22222222.tmp",
)


def test_temporary_files_of_a_killed_command_are_removed_and_of_a_running_one_kept(
    infer, make_pair, beside
):
    make_pair("0")
    left, foreign = [Path("out", name) for name in LEFTOVERS], Path("out/depth/.keep")

    def leave():
        for path in (*left, foreign):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"part of a file")

    leave()
    infer(*FOLDERS)
    assert not any(path.exists() for path in left) and foreign.exists()

    def start_another():
        leave()
        infer(*FOLDERS)
        assert all(path.exists() for path in left)

    beside(start_another)
    infer(*FOLDERS)


@pytest.mark.parametrize("length", [238, 251])
def test_names_may_be_as_long_as_the_file_system_allows(infer, make_pair, length):
    names = "0", "é" * (length // 2) + "n" * (length % 2)
    for name in names:
        make_pair(name)
    drawings = ("--video", "side.mp4", "--picture", "side.png")
    infer(*FOLDERS, "--colors", "--clouds", "--confidence", *drawings)
    for name in names:
        assert Path(f"out/colors/{name}.png").exists() and Path(f"out/clouds/{name}.ply").exists()
    assert not list(Path("out").rglob(".*.tmp"))


def test_a_video_that_the_encoder_cannot_take_is_refused_with_its_size(infer, make_pair):
    make_pair("0", height=3000, width=1)
    done = infer(*FOLDERS, "--video", "side.mp4", code=2)
    assert "pictures of 1x3000 give a video of 720x720068 pixels" in done.err
    assert "is the disk full" not in done.err


def test_with_every_frame_left_out_the_exit_code_is_2(infer, make_pair):
    for name in ("0", "1"):
        make_pair(name)
        Path(f"rgb/{name}.jpg").write_bytes(b"not a picture")
    shutil.copytree("zoe", "truth")
    for more in ((), ("--video", "side.mp4"), ("--picture", "side.png"), ("--eval", "truth")):
        done = infer(*FOLDERS, *more, code=2)
        assert "left out 0: " in done.err and "left out 1: " in done.err
        assert "no frame was refined; 2 left out for the reasons above" in done.err
    assert not Path("side.mp4").exists()
    assert not Path("side.png").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="of bundles for a CPU")
def test_a_bundle_that_was_chosen_on_another_processor_is_named(infer, alone, clips, bundle):
    choice = {"processor": "Another CPU (AVX2)", "latency_ms": {"torchscript fp32": 1.0}}
    copy_bundle(read_bundle(bundle), clips / "other.ts", {"choice": choice}, {})
    assert "was chosen" not in infer(*FOLDERS).err
    done = alone("other.ts", *FOLDERS)
    assert "was chosen as the fastest engine on Another CPU (AVX2)" in done.err


def test_damaged_frames_are_named_and_left_out_and_the_others_are_refined(infer, clips, make_pair):
    os.truncate(clips / "zoe" / "0054" / "00002.png", 60)
    os.truncate(clips / "rgb" / "0108" / "00001.jpg", 500)
    (clips / "zoe" / "0000" / "00001.png").unlink()
    make_pair("0162/00003", 30, 40)
    cv2.imwrite("zoe/0162/00003.png", np.full((48, 64), 500, np.uint16))
    done = infer(*FOLDERS, "-q", code=1)
    assert "12 frames refined, 0 kept, 4 left out" in done.out
    for name, why in (
        ("0054/00002", "cut short"), ("0108/00001", "cut short"),
        ("0000/00001", "No such file"), ("0162/00003", "differ in size: 40x30 and 64x48"),
    ):  # fmt: skip
        assert not Path(f"out/depth/{name}.png").exists()
        line = next(line for line in done.err.splitlines() if f"left out {name}" in line)
        assert why in line


def test_colours_and_clouds_are_written_on_request_and_again_when_options_change(infer, clips):
    infer(*FOLDERS)
    assert not Path("out/colors").exists()
    more = ("--colors", "--clouds")
    assert "16 frames refined, 0 kept" in infer(*FOLDERS, *more).out
    assert "0 frames refined, 16 kept" in infer(*FOLDERS, *more).out
    assert read_rgb(clips / "out/colors/0000/00000.png").shape == (48, 64, 3)
    assert "16 frames refined, 0 kept" in infer(*FOLDERS, "--clouds", "--fov", "60").out


def test_confidence_is_written_on_request_with_its_scale(infer, clips, engine):
    infer(*FOLDERS)
    assert not Path("out/confidence").exists()
    assert list(json.loads(Path("out/outputs.json").read_text())["outputs"]) == ["depth"]
    done = infer(*FOLDERS, "--confidence", "--picture", "side.png")
    assert "16 frames refined, 0 kept" in done.out
    assert "0 frames refined, 16 kept" in infer(*FOLDERS, "--confidence").out
    stated = json.loads(Path("out/outputs.json").read_text())
    assert stated["bundle"] == engine.digest
    assert stated["outputs"]["confidence"]["units"] == 10000
    files = written(clips / "out" / "confidence")
    assert list(files) == list(written(clips / "out" / "depth"))
    name, path = list(files.items())[6]
    rgb = read_rgb((clips / "rgb" / name).with_suffix(".jpg"))
    zoe = read_zoe(clips / "zoe" / name)
    _, expected = engine.arrays(rgb[None], zoe[None])
    spread = read_values(path)
    assert spread.dtype == np.uint16
    assert np.abs(spread.astype(int) - expected[0]).max() <= 2  # rounding depends on the batch size
    with Image.open(path) as image:
        assert "spread = value / 10000" in image.info["confidence-scale"]
        assert image.info["zoerefine-bundle"] == engine.digest
    assert read_rgb(Path("side.png")).ndim == 3


def test_confidence_of_a_bundle_without_it_is_one_line_before_anything_is_written(
    alone, clips, bundle
):
    outputs = {"depth": read_manifest(bundle)["outputs"]["depth"]}
    copy_bundle(read_bundle(bundle), clips / "r.ts", {"outputs": outputs}, {})
    done = alone("r.ts", *FOLDERS, "--confidence", code=2)
    [line] = done.err.splitlines()
    assert "--confidence: r.ts has no confidence: its refiner was trained with" in line
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rgb", "absent"], "--rgb absent does not exist: give a folder, a video or a quoted p"),
        (["--rgb", "empty"], "--rgb empty has no jpg or png pictures"),
        (["--rgb", "rgb[1]/*.jpg"], "write [[] for a [ of a name"),
        (["--rgb", "rgb/*/*.gif"], "--rgb rgb/*/*.gif has no jpg or png pictures"),
        (["--rgb", "note.txt"], "note.txt is neither a video that OpenCV can play nor"),
        (["--depth", "absent"], "there is no folder absent with pseudo depth"),
        (["--depth", "empty"], "empty has no pseudo depth for any of 16 pictures"),
        (["--eval", "empty"], "empty has no true depth for any of 16 pictures"),
        (["--out", ""], "a path is empty: is a variable of your script not set?"),
        *(([option, ""], " is empty") for option in ("--rgb", "--depth", "--eval")),
        (["--out", "rgb"], "--out rgb is inside rgb, so the next command would read"),
        (["--out", "rgb/refined"], "--out rgb/refined is inside rgb"),
        (["--out", "note.txt/out"], "note.txt/out cannot be written to: Not a dir"),
        (["--video", "note.txt/side.mp4"], "note.txt cannot be written to: "),
        (["--batch", "0"], "--batch must be 1 to 1024, got 0"),
        (["--batch", "1025"], "--batch must be 1 to 1024, got 1025"),
        (["--range", "2", "1"], "--range must be two depths in metres, NEAR below FAR, got 2 1"),
        (["--range", "0", "nan"], "--range must be two depths in metres"),
        (["--video", "side.mp4", "--fps", "0"], "--fps must be 0.1 to 240, got 0"),
        (["--clouds", "--fov", "180"], "--fov must be between 0 and 180"),
        (["--clouds", "--intrinsics", "0", "1", "2", "3"], "fx and fy above 0"),
        (["--video", "side.avi"], "side.avi: the name must end in .mp4"),
        (["--picture", "side"], "side: the name must end in .png or"),
    ],
)  # fmt: skip
def test_wrong_options_are_one_line_before_anything_is_written(infer, clips, words, message):
    Path("empty").mkdir()
    Path("note.txt").write_text("not a video")
    before = sorted(clips.rglob("*"))
    done = infer(*FOLDERS, *words, code=2)
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert sorted(clips.rglob("*")) == before


def test_results_never_overwrite_inputs(infer, clips):
    infer(*FOLDERS)
    before = Path("out/depth/0000/00000.png").read_bytes()
    done = infer("--rgb", "rgb", "--depth", "out/depth", "--out", "out", code=2)
    assert "out/depth holds results of --out out" in done.err
    assert Path("out/depth/0000/00000.png").read_bytes() == before


def test_a_missing_bundle_is_named(alone):
    done = alone("absent.ts", "--rgb", "x", "--depth", "y", "--out", "out", code=2)
    assert "there is no engine bundle absent.ts" in done.err
