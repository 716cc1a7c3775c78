"""infer --measured: distances measured once correct every frame, and refuse other cameras."""

import json
import shutil
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from tests.depth.rounding import assert_equal_units
from zoerefine.base.errors import UserError
from zoerefine.base.files.images import read_rgb
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.infer import Refiner
from zoerefine.depth.infer.room import Room

SOURCES = ("--rgb", "rgb", "--depth", "zoe")


@pytest.fixture
def alone(alone, clips):
    """Run the command without a bundle, for the clips."""
    return partial(alone, *SOURCES)


@pytest.fixture
def measured(clips):
    """room.csv: fifteen pixels of three frames, each 1.5 times as far as predicted."""
    return measure(clips / "zoe", clips / "room.csv")


def measure(folder, file, frames=3, points=5):
    """Write measurements of pixels, each 1.5 times as far as the depth in a folder."""
    rng = np.random.default_rng(0)
    lines = ["frame,x,y,metres"]
    for path in sorted(folder.rglob("*.png"))[:frames]:
        depth, name = read_zoe(path), path.relative_to(folder).with_suffix("")
        y, x = np.nonzero(depth)
        for i in rng.choice(len(x), points, replace=False):
            lines.append(f"{name},{x[i]},{y[i]},{1.5 * depth[y[i], x[i]] / 256:.3f}")
    file.write_text("\n".join(lines) + "\n")
    return file


def depths(folder):
    return {str(p.relative_to(folder)): read_zoe(p) for p in sorted(Path(folder).rglob("*.png"))}


def test_measurements_correct_all_frames(alone, measured):
    done = alone("--measured", "room.csv", "--out", "out")
    assert "would help most" in done.out
    for name, found in depths("out/depth").items():
        zoe = read_zoe(Path("zoe") / name)
        np.testing.assert_array_equal(found > 0, zoe > 0)
        ratio = found[zoe > 0] / zoe[zoe > 0]
        assert abs(np.log(np.median(ratio) / 1.5)) < 0.2


def test_the_kept_calibration_gives_the_same_depth_without_measurements(alone, measured):
    assert alone("--measured", "room.csv", "--out", "out")[0] == 0
    assert alone("--measured", "out/room.json", "--out", "again")[0] == 0
    for name, found in depths("again/depth").items():
        np.testing.assert_array_equal(found, read_zoe(Path("out/depth") / name))
    assert "16 kept" in alone("--measured", "room.csv", "--out", "out")[1]


def test_frames_are_corrected_again_when_a_measurement_changes(alone, measured):
    alone("--measured", "room.csv", "--out", "out")
    lines = measured.read_text().splitlines()
    measured.write_text("\n".join(lines[:-1]) + "\n")
    assert "16 frames refined, 0 kept" in alone("--measured", "room.csv", "--out", "out")[1]


def test_a_changed_or_damaged_calibration_is_refused(alone, measured):
    alone("--measured", "room.csv", "--out", "out")
    found = json.loads(Path("out/room.json").read_text())
    for name, text in {
        "changed": json.dumps(found | {"pixel_variance": 1.0}),
        "cut": Path("out/room.json").read_text()[:50],
        "list": "[]",
    }.items():
        Path(f"{name}.json").write_text(text)
        done = alone("--measured", f"{name}.json", "--out", "other", code=2)
        assert f"{name}.json is no room calibration, or it was changed" in done.err


def test_another_network_is_refused(alone, measured):
    Path("zoe/pseudo.json").write_text('{"name": "one", "digest": "1"}')
    assert alone("--measured", "room.csv", "--out", "out")[0] == 0
    Path("zoe/pseudo.json").write_text('{"name": "two", "digest": "2"}')
    done = alone("--measured", "out/room.json", "--out", "other", code=2)
    assert "measured with depth of one" in done.err and "depth of two" in done.err


@pytest.mark.parametrize("unknown", ["measured", "corrected"])
def test_depth_of_unknown_origin_is_accepted_with_one_line(alone, measured, unknown):
    file = Path("zoe/pseudo.json")
    for step, more in (
        ("measured", ("--measured", "room.csv", "--out", "out")),
        ("corrected", ("--measured", "out/room.json", "--out", "other")),
    ):
        file.unlink(missing_ok=True)
        if step != unknown:
            file.write_text('{"name": "one", "digest": "1"}')
        lines = alone(*more).err.splitlines()
        said = [line for line in lines if "the room was measured with depth of" in line]
        assert len(said) == (step == "corrected")
    before, now = ("unknown", "one") if unknown == "measured" else ("one", "unknown")
    assert f"with depth of: {before}" in said[0] and f"corrects that of: {now}" in said[0]
    assert said[0].endswith("unknown (no pseudo.json states it)") == (unknown == "corrected")


def test_nothing_is_said_where_neither_network_is_known(alone, measured):
    Path("zoe/pseudo.json").unlink()
    assert alone("--measured", "room.csv", "--out", "out")[0] == 0
    assert "unknown" not in alone("--measured", "out/room.json", "--out", "other").err


def test_pictures_of_another_size_are_refused(alone, measured):
    assert alone("--measured", "room.csv", "--out", "out")[0] == 0
    for path in (*Path("rgb").rglob("*.jpg"), *Path("zoe").rglob("*.png")):
        small = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)[:32, :40]
        assert cv2.imwrite(str(path), small)
    done = alone("--measured", "out/room.json", "--out", "other", code=2)
    assert "another camera needs measurements of its own" in done.err


@pytest.mark.parametrize("side", ["refined", "pseudo"])
def test_the_refiner_is_used_where_what_was_measured_shows_that_it_helps(
    infer, clips, bundle, side
):
    infer(*SOURCES, "--out", "plain")
    measure(Path("plain/depth" if side == "refined" else "zoe"), Path("room.csv"), 8, 12)
    done = infer(*SOURCES, "--measured", "room.csv", "--out", "out")
    said = "used" if side == "refined" else "left away"
    [line] = [line for line in done.out.splitlines() if line.startswith("the refiner is ")]
    assert line.startswith(f"the refiner is {said}: what was measured is off by a factor of ")
    room = Room.load("out/room.json")
    assert room.refines == (side == "refined")
    for name, found in depths("out/depth").items():
        corrected = read_zoe(Path("plain/depth" if room.refines else "zoe") / name)
        np.testing.assert_array_equal(found, room.corrected(corrected[None])[0][0])

    again = infer(*SOURCES, "--measured", "out/room.json", "--stream", "--out", "steady")
    assert line in again.out.splitlines()
    rgb = read_rgb(Path("rgb") / Path(name).with_suffix(".jpg"))
    zoe = read_zoe(Path("zoe") / name)
    refiner = Refiner.load(bundle, room="out/room.json")
    assert_equal_units(refiner(rgb, zoe), found)
    assert_equal_units(refiner.stream()(rgb, zoe), found)
    depth, spread = refiner.with_confidence(torch.from_numpy(rgb), torch.from_numpy(zoe))
    assert_equal_units(depth.numpy(), found)
    np.testing.assert_array_equal(spread.numpy() > 0, found > 0)


def test_another_bundle_is_refused(alone, measured, bundle):
    assert alone("--measured", "room.csv", "--out", "by_points")[0] == 0
    with pytest.raises(UserError, match="measured with no bundle, and this is the bundle"):
        Refiner.load(bundle, room="by_points/room.json")


def test_metrics_say_nothing_of_a_refiner_that_was_left_away(infer, measured):
    done = infer(*SOURCES, "--measured", "room.csv", "--eval", "true", "--out", "out")
    assert "the refiner is left away: " in done.out
    assert "leave the refiner out" not in done.out
    assert "this refiner" not in done.err  # what its training warns of
    header = next(line for line in done.out.splitlines() if line.endswith("ratio"))
    assert header.split() == ["pseudo", "corrected", "ratio"]


def test_confidence_is_that_of_the_room(alone, measured):
    assert alone("--measured", "room.csv", "--confidence", "--out", "out")[0] == 0
    for name, spread in depths("out/confidence").items():
        depth = read_zoe(Path("out/depth") / name) / 256
        np.testing.assert_array_equal(spread > 0, depth > 0)
        true_m = 1.5 * read_zoe(Path("zoe") / name) / 256
        apart = np.abs(np.log(depth / true_m, where=depth > 0, out=np.zeros_like(depth)))
        assert np.mean(apart <= spread / 10_000) > 0.9


def test_the_picture_says_that_the_room_was_measured(alone, measured):
    alone("--measured", "room.csv", "--picture", "a.svg", "--out", "out")
    assert "corrected by what was measured in the room" in Path("a.svg").read_text()


def test_another_camera_is_refused(alone, measured):
    camera = "--intrinsics", "50", "50", "31.5", "23.5"
    assert alone("--measured", "room.csv", *camera, "--out", "out")[0] == 0
    assert alone("--measured", "out/room.json", *camera, "--out", "same")[0] == 0
    other = "--intrinsics", "60", "50", "31.5", "23.5"
    done = alone("--measured", "out/room.json", *other, "--out", "other", code=2)
    assert "measured with a camera of fx 50" in done.err


def test_a_fault_in_the_file_is_one_line_and_nothing_is_written(alone, measured):
    measured.write_text(measured.read_text() + "nowhere,1,1,2\n")
    done = alone("--measured", "room.csv", "--out", "out", code=2)
    assert "room.csv line 17: there is no frame 'nowhere'" in done.err
    assert not Path("out/depth").exists()
    shutil.rmtree("out", ignore_errors=True)
