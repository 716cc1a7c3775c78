"""zoerefine measure: what it prints of a CSV file, and the file that infer takes."""

import signal
import urllib.request
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.depth.measure.conftest import options, predicted_u16
from zoerefine.cli import main
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.infer.room import Room


@pytest.fixture
def measure(recording, command):
    """Run the command: measure("--out", ...) -> Finished."""
    return lambda *words, code=0: command("measure", *options(*words), code=code)


def write_measurements(*more, factor=0.8):
    rng = np.random.default_rng(1)
    lines = ["frame,x,y,metres"]
    for name in "abc":
        for y, x in rng.integers(1, (48, 64), (5, 2)):
            lines.append(f"{name},{x},{y},{factor * predicted_u16(name)[y, x] / 256:.3f}")
    Path("room.csv").write_text("\n".join([*lines, *more]) + "\n")


def test_it_prints_calibration_and_advice_and_writes_what_infer_takes(measure):
    write_measurements()
    done = measure()
    factor = float(done.out.split("factor ")[1].split()[0])
    assert factor == pytest.approx(0.8, abs=0.08)
    assert "would help most" in done.out and "room.json" in done.out
    assert "reading depth of some frames: 3/3 frame, " in done.err
    words = ["--rgb", "rgb", "--depth", "zoe"]
    assert main(["infer", "--measured", "room.json", *words, "--out", "kept"]) == 0
    assert main(["infer", "--measured", "room.csv", *words, "--out", "again"]) == 0
    assert Room.load("room.json").digest == Room.load("again/room.json").digest
    for name in "abc":
        found = read_zoe(Path(f"kept/depth/{name}.png"))
        np.testing.assert_array_equal(found, read_zoe(Path(f"again/depth/{name}.png")))


def test_a_measurement_that_disagrees_is_named(measure):
    write_measurements("b,20,20,9.5")
    done = measure("-q")
    assert "room.csv line 17: 9.5 m hardly counts" in done.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("b,20,60,1", "line 17: x 20, y 60 is outside the picture of 64x48; x and y seem to be"),
        ("z,1,1,1", "line 17: there is no frame 'z'"),
        ("0,1,1,1", "there is no frame '0': frames of a video are 000000, 000001, ..."),
    ],
)
def test_a_fault_is_one_line_and_leaves_no_calibration(measure, line, words):
    write_measurements()
    measure()
    write_measurements(line)
    done = measure(code=2)
    assert words in done.err
    assert not Path("room.json").exists()


def test_places_that_are_shares_of_the_picture_are_refused(measure):
    Path("room.csv").write_text("frame,x,y,metres\na,0.1,0.5,2\nb,0.5,0.5,2\nc,0.9,0.1,2\n")
    assert "room.csv: every x and y is at most 1, and they are pixels" in measure(code=2).err
    assert not Path("room.json").exists()


def test_pixels_of_a_picture_are_not_looked_up_in_depth_of_another_size(measure, command):
    write_measurements()
    rgb = cv2.imread("rgb/b.jpg")
    assert cv2.imwrite("rgb/b.jpg", cv2.resize(rgb, (128, 96)))
    words = ("--rgb", "rgb", "--depth", "zoe", "--out", "out", "--measured", "room.csv")
    for done in (measure(code=2), command("infer", *words, code=2)):
        assert "the picture and zoe/b.png differ in size: 128x96 and 64x48" in done.err
    assert not Path("room.json").exists()


def test_a_calibration_of_another_network_or_camera_is_not_replaced(measure):
    write_measurements()
    Path("zoe/pseudo.json").write_text('{"name": "one", "digest": "1"}')
    measure("--intrinsics", 50, 50, 31.5, 23.5)
    before = Path("room.json").read_bytes()
    done = measure("--intrinsics", 60, 60, 31.5, 23.5, code=2)
    assert "measured with a camera of fx 50" in done.err
    Path("zoe/pseudo.json").write_text('{"name": "two", "digest": "2"}')
    done = measure(code=2)
    assert "measured with depth of one" in done.err
    assert Path("room.json").read_bytes() == before
    measure("--out", "two.json")


def test_without_a_file_the_page_is_named(measure):
    done = measure(code=2)
    assert "there is no file room.csv: measure on a page with --page" in done.err


def test_the_page_is_served_until_it_is_interrupted(recording, start_script):
    process = start_script("measure", *options("--page", "--port", 0))
    url = process.stdout.readline().split()[-1]
    with urllib.request.urlopen(url) as answer:
        assert b"Measure a room" in answer.read()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
