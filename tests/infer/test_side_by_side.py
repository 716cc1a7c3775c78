"""Pictures for people: one frame side by side, and all frames as a video."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from zoerefine.image_files import read_rgb

FOLDERS = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")


def frames_of(path):
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (read := capture.read())[0]:
        frames.append(read[1])
    return frames, capture.get(cv2.CAP_PROP_FPS)


def test_the_middle_frame_is_drawn(infer, clips):
    assert infer(*FOLDERS, "--picture", "side.png").code == 0
    with Image.open("side.png") as image:
        assert image.size[0] > 1000


def test_the_video_shows_pictures_and_both_depths_in_order(infer, make_pair):
    for number in range(5):
        make_pair(f"{number}", 48, 64, seed=number)
        cv2.imwrite(f"rgb/{number}.jpg", np.full((48, 64, 3), 40 * number + 20, np.uint8))
    done = infer(*FOLDERS, "--video", "side.mp4")
    assert done.code == 0, done.err
    frames, _ = frames_of("side.mp4")
    assert [frame.shape for frame in frames] == [(48, 3 * 64, 3)] * 5
    for number, frame in enumerate(frames):
        assert frame[:, :64].mean() == pytest.approx(40 * number + 20, abs=6)
    refined = cv2.imread("out/depth/0.png", cv2.IMREAD_UNCHANGED) / 256
    assert refined.any()
    assert frames[0][:, 64:].std() > 5  # depths are drawn
    assert sorted(Path().glob(".*")) == []


def test_a_video_of_a_video_has_its_frame_rate_and_includes_kept_frames(infer, make_video):
    video = make_video("a.mp4", 6)
    Path("zoe").mkdir()
    for number in range(6):
        cv2.imwrite(f"zoe/{number:06d}.png", np.full((48, 64), 300, np.uint16))
    words = ("--rgb", video, "--depth", "zoe", "--out", "out")
    infer(*words)
    assert "6 kept" in infer(*words, "--video", "side.mp4").out
    frames, fps = frames_of("side.mp4")
    originals, same_fps = frames_of(video)
    assert (len(frames), fps) == (6, same_fps)
    for frame, original in zip(frames, originals, strict=True):
        assert np.abs(frame[:, :64].astype(float) - original).mean() < 8


def test_frames_are_resized_to_the_first_one_in_the_video(infer, make_pair):
    make_pair("0", 48, 64)
    make_pair("1", 60, 40)
    assert infer(*FOLDERS, "--video", "side.mp4").code == 0
    assert [frame.shape for frame in frames_of("side.mp4")[0]] == [(48, 192, 3)] * 2


def test_a_frame_that_was_left_out_is_not_in_the_video(infer, make_pair):
    make_pair("0")
    make_pair("1")
    Path("rgb/0.jpg").write_bytes(b"no picture")
    assert infer(*FOLDERS, "--video", "side.mp4").code == 1
    assert len(frames_of("side.mp4")[0]) == 1


def test_the_partial_video_of_a_killed_command_is_removed(infer, make_pair):
    make_pair("0")
    Path(".side.mp4.0123abcd.mp4").write_bytes(b"part of a video")
    assert infer(*FOLDERS, "--video", "side.mp4").code == 0
    assert not Path(".side.mp4.0123abcd.mp4").exists()


def test_colours_show_the_refined_depth(infer, make_pair):
    make_pair("0")
    infer(*FOLDERS, "--colors", "--farthest", "8")
    with Image.open("out/colors/0.png") as image:
        assert "zoerefine-bundle" in image.info
        assert image.info["colors"] == "viridis, 0 to 8 m"
    refined_m = cv2.imread("out/depth/0.png", cv2.IMREAD_UNCHANGED) / 256
    brightness = read_rgb(Path("out/colors/0.png")).sum(2)  # viridis grows lighter
    near, far = refined_m < 2, refined_m > 6
    assert brightness[near].max() < brightness[far].min()


# The largest file is limited, as on a full disk: results fit, and the video does not.
FULL = """
import resource, sys
from zoerefine.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
sys.exit(main(["infer", *sys.argv[1:]]))
"""


def test_a_video_that_a_full_disk_cut_short_is_one_error_and_no_file(bundle, make_pair, tmp_path):
    for number in range(30):
        make_pair(f"{number}", 96, 128, seed=number)
    words = ("--rgb", "rgb", "--depth", "zoe", "--out", "out", "--video", "side.mp4")
    done = subprocess.run(
        [sys.executable, "-c", FULL, bundle, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "side.mp4" in errors[0]
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.mp4"))
    assert not list(tmp_path.glob(".*"))
