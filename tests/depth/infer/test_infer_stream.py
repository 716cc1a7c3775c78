"""infer --stream: the same depth as by `Refiner.stream`, in order, whatever was there before."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.depth.rounding import assert_equal_units
from zoerefine.base.files.images import read_rgb
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.infer import Refiner
from zoerefine.depth.infer.sources import open_source
from zoerefine.depth.infer.stream import step
from zoerefine.depth.points import PointFiles
from zoerefine.depth.points.for_engines import corrected

FOLDERS = ("--rgb", "rgb", "--depth", "zoe")
STREAM = (*FOLDERS, "--stream")


@pytest.fixture(scope="module")
def refiner(bundle):
    return Refiner.load(bundle)


@pytest.fixture
def recordings(make_pair, infer):
    """Two clips of frames that differ little, in folders rgb/ and zoe/."""
    for clip, count in (("a", 7), ("b", 4)):
        rng = np.random.default_rng(len(clip) + count)
        make_pair(f"{clip}/0", seed=count)
        rgb, zoe = cv2.imread(f"rgb/{clip}/0.jpg"), read_zoe(Path(f"zoe/{clip}/0.png"))
        for number in range(1, count):
            noisy = np.clip(rgb + rng.normal(0, 2, rgb.shape), 0, 255).astype(np.uint8)
            cv2.imwrite(f"rgb/{clip}/{number}.jpg", noisy)
            scaled = (zoe * np.exp(rng.normal(0, 0.1))).astype(np.uint16)
            cv2.imwrite(f"zoe/{clip}/{number}.png", scaled)


def depths(out="out"):
    """Refined depth by name."""
    folder = Path(out) / "depth"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.png"))}


def expected(refiner, clip, count):
    """What `Refiner.stream` returns for a clip."""
    stream = refiner.stream()
    pairs = [(read_rgb(Path(f"rgb/{clip}/{n}.jpg")), read_zoe(Path(f"zoe/{clip}/{n}.png")))
             for n in range(count)]  # fmt: skip
    return [stream(*pair) for pair in pairs]


def test_files_hold_what_the_refiners_stream_returns(infer, recordings, refiner):
    infer(*STREAM, "--out", "out")
    for clip, count in (("a", 7), ("b", 4)):
        for number, depth in enumerate(expected(refiner, clip, count)):
            found = read_zoe(Path(f"out/depth/{clip}/{number}.png"))
            np.testing.assert_array_equal(found, depth)
    infer(*FOLDERS, "--batch", 1, "--out", "plain")
    alone, steady = (read_zoe(Path(f"{out}/depth/a/3.png")) for out in ("plain", "out"))
    assert (alone != steady).any()
    first = (read_zoe(Path(f"{out}/depth/b/0.png")) for out in ("plain", "out"))
    np.testing.assert_array_equal(*first)


@pytest.mark.parametrize(
    "missing", [["a/6"], ["a/0"], ["a/3", "a/5", "b/1"], ["a/4", "a/5", "a/6", "b/0"]]
)
def test_missing_frames_are_made_again_with_the_same_bits(infer, recordings, missing):
    infer(*STREAM, "--out", "out")
    before = depths()
    for name in missing:
        Path(f"out/depth/{name}.png").unlink()
    done = infer(*STREAM, "--out", "out")
    assert f"{len(missing)} frames refined, {11 - len(missing)} kept" in done.out
    assert depths() == before


def test_a_changed_frame_changes_all_after_it_in_its_clip(infer, recordings):
    infer(*STREAM, "--out", "out")
    zoe = Path("zoe/a/2.png")
    cv2.imwrite(str(zoe), read_zoe(zoe) // 2)
    assert "5 frames refined, 6 kept" in infer(*STREAM, "--out", "out").out
    infer(*STREAM, "--out", "undisturbed")
    assert depths() == depths("undisturbed")


def test_a_broken_frame_is_left_out_and_the_others_follow_each_other(infer, recordings):
    Path("rgb/a/1.jpg").write_bytes(b"no picture")
    done = infer(*STREAM, "--out", "out", code=1)
    assert "left out a/1" in done.out + done.err
    before = depths()
    assert len(before) == 10
    Path("out/depth/a/2.png").unlink()  # the last kept frame is two before it
    infer(*STREAM, "--out", "out", code=1)
    assert depths() == before


def test_a_folder_has_depth_with_stream_or_without(infer, recordings):
    infer(*STREAM, "--out", "steady")
    infer(*FOLDERS, "--out", "plain")
    assert json.loads(Path("steady/outputs.json").read_text())["stream"] is True
    for words, out, was in ((FOLDERS, "steady", "with"), (STREAM, "plain", "without")):
        done = infer(*words, "--out", out, code=2)
        assert f"--out {out} has depth made {was} --stream" in done.err
        assert "give another folder" in done.err


def test_a_batch_contradicts_a_stream(infer, recordings):
    done = infer(*STREAM, "--out", "out", "--batch", "4", code=2)
    assert "leave --batch out" in done.err
    assert not Path("out").exists()


def test_frames_come_in_the_order_of_their_numbers(make_pair, infer):
    for name in ("b/frame10", "b/frame9", "a10/1", "a9/1", "b/frame011", "b/sub/x", "b/zebra"):
        make_pair(name)
    names = ["a9/1", "a10/1", "b/frame9", "b/frame10", "b/frame011", "b/zebra", "b/sub/x"]
    assert open_source("rgb").names == names


def test_a_video_is_one_clip(infer, make_video, refiner):
    video = make_video("clip.mp4")
    rng = np.random.default_rng(0)
    frames = list(open_source(str(video)).frames())
    Path("zoe").mkdir()
    zoe = rng.integers(500, 900, (len(frames), 48, 64)).astype(np.uint16)
    for frame, depth in zip(frames, zoe, strict=True):
        cv2.imwrite(f"zoe/{frame.name}.png", depth)
    words = ("--rgb", video, "--depth", "zoe", "--stream", "--out", "out")
    infer(*words)
    before, stream = depths(), refiner.stream()
    for frame, depth in zip(frames, zoe, strict=True):
        found = read_zoe(Path(f"out/depth/{frame.name}.png"))
        np.testing.assert_array_equal(found, stream(frame.read(), depth))
    for number in (4, 7):
        Path(f"out/depth/{number:06d}.png").unlink()
    infer(*words)
    assert depths() == before


def test_points_correct_the_depth_before_it_becomes_steady_and_give_it_confidence(
    infer, recordings, refiner
):
    Path("points/a").mkdir(parents=True)
    for number in (0, 2, 3):
        Path(f"points/a/{number}.csv").write_text("x,y,metres\n10,10,2.5\n50,30,3\n")
    infer(*STREAM, "--points", "points", "--confidence", "--out", "out")
    points, memory = PointFiles(Path("points")), None
    stream, with_confidence = refiner.stream(), refiner.stream().with_confidence
    for number in range(7):
        rgb, zoe = read_rgb(Path(f"rgb/a/{number}.jpg")), read_zoe(Path(f"zoe/a/{number}.png"))
        given = points.read(f"a/{number}", *zoe.shape)
        steady, memory = step(memory, rgb, corrected(refiner(rgb, zoe), given))
        by_stream, spread = with_confidence(rgb, zoe, given)
        found = read_zoe(Path(f"out/depth/a/{number}.png"))
        for depth in (steady, by_stream, stream(rgb, zoe, given)):
            np.testing.assert_array_equal(found, depth)
        np.testing.assert_array_equal(read_zoe(Path(f"out/confidence/a/{number}.png")), spread)
        own = refiner.with_confidence(rgb, zoe)[1]
        assert (spread != own).any() == bool(len(given))


def test_confidence_of_a_stream_is_that_of_its_frames(infer, recordings, refiner):
    words = (*STREAM, "--confidence", "--out", "out")
    infer(*words)
    infer(*STREAM, "--out", "alone")
    assert depths() == depths("alone")
    stream = refiner.stream()
    for number in range(7):
        rgb, zoe = read_rgb(Path(f"rgb/a/{number}.jpg")), read_zoe(Path(f"zoe/a/{number}.png"))
        steady, spread = stream.with_confidence(rgb, zoe)
        assert_equal_units(read_zoe(Path(f"out/depth/a/{number}.png")), steady)
        found = read_zoe(Path(f"out/confidence/a/{number}.png"))
        assert_equal_units(found, spread)
        assert_equal_units(found, refiner.with_confidence(rgb, zoe)[1])
        np.testing.assert_array_equal(found > 0, steady > 0)
    before = {path: path.read_bytes() for path in Path("out").rglob("*.png")}
    Path("out/confidence/a/3.png").unlink()
    assert "1 frames refined, 10 kept" in infer(*words).out
    assert {path: path.read_bytes() for path in Path("out").rglob("*.png")} == before
