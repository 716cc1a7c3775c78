"""The camera example, run as a robot would, on a video file."""

import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from zoerefine.data.zoedepth import load_model, predict
from zoerefine.infer import Refiner

pytest.importorskip("transformers", reason="transformers is not installed here")
CAMERA = Path(__file__).resolve().parents[2] / "examples" / "camera.py"


def run(folder, *words):
    return subprocess.run(
        [sys.executable, "-W", "ignore", CAMERA, *map(str, words)],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip


def test_it_says_how_far_ahead_is_free_in_each_frame(study, small_zoedepth, tmp_path):
    bundle = study.path / "best" / "engine" / "refiner.ts"
    video = tmp_path / "a.mp4"
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter.fourcc(*"mp4v"), 12, (64, 48))
    for number in range(3):
        writer.write(np.full((48, 64, 3), 80 * number, np.uint8))
    writer.release()
    done = run(tmp_path, bundle, "--camera", video, "--zoedepth", small_zoedepth)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    refiner, model = Refiner.load(bundle), load_model(str(small_zoedepth))
    capture = cv2.VideoCapture(str(video))
    for line in lines:
        rgb = cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)
        zoe_m = predict(model, rgb[None])[0]
        due = [np.percentile(d[16:-16, 21:-21], 5) for d in (refiner(rgb, zoe_m), zoe_m)]
        told = [float(value) for value in re.findall(r"([\d.]+) m\b", line)]
        assert told == pytest.approx(due, abs=0.02)


def test_a_camera_that_is_not_there_is_named(study, small_zoedepth, tmp_path):
    bundle = study.path / "best" / "engine" / "refiner.ts"
    done = run(tmp_path, bundle, "--camera", "absent.mp4", "--zoedepth", small_zoedepth)
    assert done.returncode != 0
    assert "error: no camera or video absent.mp4" in done.stderr
