"""The camera example, on a video file instead of a camera."""

import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.processes import run_program
from zoerefine.depth.data.networks import load_network
from zoerefine.depth.infer import Refiner

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed"
)
CAMERA = Path(__file__).resolve().parents[2] / "examples" / "camera.py"


def test_it_prints_the_distance_ahead_for_each_frame(exported_run, small_zoedepth, tmp_path):
    bundle = exported_run.bundle
    video = tmp_path / "a.mp4"
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter.fourcc(*"mp4v"), 12, (64, 48))
    for number in range(3):
        writer.write(np.full((48, 64, 3), 80 * number, np.uint8))
    writer.release()
    command = [sys.executable, "-W", "ignore", CAMERA, bundle, "--camera", video]
    done = run_program([*command, "--depth-model", small_zoedepth], cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    refiner, network = Refiner.load(bundle), load_network(str(small_zoedepth))
    capture = cv2.VideoCapture(str(video))
    for line in lines:
        rgb = cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)
        zoe_m = network.predict(rgb[None])[0]
        expected = [np.percentile(d[16:-16, 21:-21], 5) for d in (refiner(rgb, zoe_m), zoe_m)]
        printed = [float(value) for value in re.findall(r"([\d.]+) m\b", line)]
        assert printed == pytest.approx(expected, abs=0.02)


def test_a_missing_camera_is_named(exported_run, small_zoedepth, monkeypatch):
    words = [exported_run.bundle, "--camera", "absent.mp4", "--depth-model", small_zoedepth]
    monkeypatch.setattr(sys, "argv", ["camera.py", *map(str, words)])
    with pytest.raises(SystemExit, match=r"error: there is no camera or video absent\.mp4"):
        runpy.run_path(str(CAMERA), run_name="__main__")
