"""Pictures for people: one frame side by side, and all frames as a video."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.verb_server import run_verb
from zoerefine.base.files.images import read_rgb

FOLDERS = ("--rgb", "rgb", "--depth", "zoe", "--out", "out")


def frames_of(path):
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (read := capture.read())[0]:
        frames.append(read[1])
    return frames, capture.get(cv2.CAP_PROP_FPS)


def test_the_video_shows_pictures_and_both_depths_in_order(infer, make_pair):
    for number in range(5):
        make_pair(f"{number}", 48, 64, seed=number)
        cv2.imwrite(f"rgb/{number}.jpg", np.full((48, 64, 3), 40 * number + 20, np.uint8))
    infer(*FOLDERS, "--video", "side.mp4")
    frames, fps = frames_of("side.mp4")
    assert fps == 24
    assert [frame.shape for frame in frames] == [(24 + 192 + 44, 3 * 256, 3)] * 5  # 4 times as wide
    for number, frame in enumerate(frames):
        assert panels(frame)[0].mean() == pytest.approx(40 * number + 20, abs=6)
    refined = cv2.imread("out/depth/0.png", cv2.IMREAD_UNCHANGED) / 256
    assert refined.any()
    assert all(panel.std() > 5 for panel in panels(frames[0])[1:])  # depths are drawn
    assert sorted(Path().glob(".*")) == []


def panels(frame, count=3):
    """The pictures of a frame of the video without labels and colour bar."""
    return np.split(frame[24:-44], count, 1)


def test_the_video_has_labels_a_colour_bar_and_the_names_of_frames(infer, make_pair):
    make_pair("0")
    make_pair("another frame")
    infer(*FOLDERS, "--video", "side.mp4", "--range", "1", "5")
    first, second = frames_of("side.mp4")[0]
    for label in np.split(first[:24], 3, 1):
        assert (label > 200).any() and (label < 60).any()  # light text on dark
    bar = first[-34:-28, 290:600].astype(int)  # viridis: from violet to yellow
    assert bar[:, :10, 0].mean() > bar[:, :10, 1].mean()  # BGR
    assert bar[:, -10:, 1].mean() > bar[:, -10:, 0].mean() + 100
    assert np.abs(first[-44:, :256].astype(int) - second[-44:, :256]).max() > 100  # the name
    assert np.abs(first[-44:, 256:].astype(int) - second[-44:, 256:]).mean() < 5


def test_a_video_has_the_rate_of_fps(infer, make_pair):
    make_pair("0")
    for words, rate in (("23.976", 24000 / 1001), ("5", 5)):
        infer(*FOLDERS, "--video", "side.mp4", "--fps", words)
        assert frames_of("side.mp4")[1] == pytest.approx(rate, rel=1e-4)


def test_the_video_plays_in_a_browser(infer, make_pair, browser, wait_until):
    for number in range(6):
        make_pair(f"{number}", 47, 63, seed=number)  # the encoder needs even sizes
    infer(*FOLDERS, "--confidence", "--video", "side.mp4", "--fps", "12")
    Path("page.html").write_text('<video id="side" src="side.mp4" muted></video>')
    browser.get(Path("page.html").resolve().as_uri())

    def video(what):
        return browser.execute_script(f"return document.getElementById('side').{what}")

    wait_until(lambda: video("readyState") >= 2)  # HAVE_CURRENT_DATA: a frame was decoded
    assert (video("videoWidth"), video("videoHeight")) == (4 * 252, 24 + 188 + 44)
    assert video("duration") == pytest.approx(0.5, abs=0.1)
    video("play()")
    wait_until(lambda: video("ended"))
    assert video("error") is None


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
        large = cv2.resize(original, (256, 192))
        assert np.abs(panels(frame)[0].astype(float) - large).mean() < 8


def test_frames_are_resized_to_the_first_one_in_the_video_and_a_left_out_one_is_not_in_it(
    infer, make_pair
):
    for name, size in (("0", (48, 64)), ("1", (60, 40)), ("2", (48, 64))):
        make_pair(name, *size)
    Path("rgb/2.jpg").write_bytes(b"no picture")
    infer(*FOLDERS, "--video", "side.mp4", code=1)
    assert [frame.shape for frame in frames_of("side.mp4")[0]] == [(260, 768, 3)] * 2


def test_colours_show_the_refined_depth_in_a_range_that_is_given(infer, make_pair):
    make_pair("0")
    assert "colours show 0.5 to 8 m\n" in infer(*FOLDERS, "--colors", "--range", "0.5", "8").out
    with Image.open("out/colors/0.png") as image:
        assert {"zoerefine-bundle", "zoerefine-commit", "zoerefine-inputs"} <= image.info.keys()
        assert image.info["colors"] == "viridis, 0.5 to 8 m"
    refined_m = cv2.imread("out/depth/0.png", cv2.IMREAD_UNCHANGED) / 256
    brightness = read_rgb(Path("out/colors/0.png")).sum(2)  # viridis grows lighter
    near, far = refined_m < 2, refined_m > 6
    assert brightness[near].max() < brightness[far].min()


def test_colours_have_the_range_of_the_data_by_default(infer, make_pair):
    make_pair("0")
    zoe = np.tile(np.linspace(2.5, 3.5, 64) * 256, (48, 1)).astype(np.uint16)
    zoe[:20, :20] = 0
    cv2.imwrite("zoe/0.png", zoe)
    out = infer(*FOLDERS, "--colors").out
    near, far = map(float, re.search(r"colours show (\S+) to (\S+) m, 1st to 99th", out).groups())
    refined_m = cv2.imread("out/depth/0.png", cv2.IMREAD_UNCHANGED) / 256
    both = np.concatenate([refined_m[refined_m > 0], zoe[zoe > 0] / 256])
    assert near == pytest.approx(np.percentile(both, 1), abs=0.15)
    assert far == pytest.approx(np.percentile(both, 99), abs=0.15)
    colors = read_rgb(Path("out/colors/0.png"))
    assert (colors[refined_m == 0] == 190).all()  # invalid pixels are grey


def test_colours_of_another_range_need_no_new_depth(infer, make_pair):
    make_pair("0")
    infer(*FOLDERS, "--colors", "--range", "0", "10")
    first = Path("out/colors/0.png").read_bytes()
    assert "0 frames refined, 1 kept" in infer(*FOLDERS, "--colors", "--range", "0", "5").out
    assert Path("out/colors/0.png").read_bytes() != first


def test_a_video_that_a_full_disk_cut_short_is_one_error_and_no_file(bundle, make_pair, tmp_path):
    for number in range(30):
        make_pair(f"{number}", 96, 128, seed=number)
    words = ("--rgb", "rgb", "--depth", "zoe", "--out", "out", "--video", "side.mp4")
    # Results fit below the limit, and the video does not.
    done = run_verb(["infer", bundle, *words], tmp_path, largest_file=60_000)
    assert done.code == 2, done.err
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "side.mp4" in errors[0]
    assert "Traceback" not in done.err
    assert not list(tmp_path.glob("*.mp4"))
    assert not list(tmp_path.glob(".*"))
