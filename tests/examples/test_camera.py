"""The camera example, on a video file instead of a camera."""

import json
import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from tests.processes import run_program
from zoerefine.depth.data.networks import load_network
from zoerefine.depth.infer import Refiner

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed"
)
CAMERA = Path(__file__).resolve().parents[2] / "examples" / "camera.py"


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "a.mp4"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), 12, (64, 48))
    for number in range(3):
        writer.write(np.full((48, 64, 3), 80 * number, np.uint8))
    writer.release()
    return path


class Constant(torch.nn.Module):
    """A network that predicts 4 m."""

    def forward(self, rgb):
        return rgb[:, :1] * 0 + 4


@pytest.fixture
def focal_network(tmp_path):
    """An ONNX file of it, whose metres are times the focal length / 300."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed here")
    path = tmp_path / "constant.onnx"
    torch.onnx.export(Constant(), (torch.rand(1, 3, 24, 32),), dynamo=True).save(path)
    facts = {"name": "constant", "height": 24, "width": 32, "unit": "m", "focal": 300,
             "mean": [0.5] * 3, "std": [0.5] * 3}  # fmt: skip
    path.with_suffix(".json").write_text(json.dumps(facts))
    return path


@pytest.fixture
def camera(monkeypatch, capsys):
    """Run the example in this process: camera(bundle, *words) -> its exit code and output."""

    def run(bundle, *words):
        monkeypatch.setattr(sys, "argv", ["camera.py", *map(str, (bundle, *words))])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(CAMERA), run_name="__main__")
        return ended.value.code, capsys.readouterr()

    return run


def test_it_prints_the_distance_ahead_for_each_frame(exported_run, small_zoedepth, tmp_path, video):
    bundle = exported_run.bundle
    command = [sys.executable, "-W", "ignore", CAMERA, bundle, "--camera", video]
    done = run_program([*command, "--depth-model", small_zoedepth, "--any-pseudo"], cwd=tmp_path)
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


def test_a_missing_camera_or_bundle_is_named(camera, exported_run, small_zoedepth):
    words = "--camera", "absent.mp4", "--depth-model", small_zoedepth
    code, shown = camera(exported_run.bundle, *words, "--any-pseudo")
    assert code == 2 and shown.err.endswith("error: there is no camera or video absent.mp4\n")
    code, shown = camera("absent.ts", *words)
    assert code == 2 and shown.err.startswith("error: ") and "absent.ts" in shown.err


def test_depth_of_another_network_than_the_bundle_was_trained_on_is_refused(
    camera, exported_run, small_zoedepth, video
):
    words = exported_run.bundle, "--camera", video, "--depth-model", small_zoedepth
    code, shown = camera(*words)
    assert code == 2 and not shown.out
    assert "was trained on pseudo depth of synthetic" in shown.err
    code, shown = camera(*words, "--any-pseudo")
    assert code == 0 and shown.out.count("m ahead") == 3


def test_a_network_with_a_focal_term_gets_the_camera(camera, exported_run, video, focal_network):
    words = "--camera", video, "--depth-model", focal_network, "--any-pseudo"
    code, shown = camera(exported_run.bundle, *words)
    assert code == 2 and "needs the camera's focal length: give --intrinsics" in shown.err
    for focal in (150, 300):  # in pixels of 64; the network's picture has 32
        code, shown = camera(exported_run.bundle, *words, "--intrinsics", focal, focal, 32, 24)
        assert code == 0 and f"(pseudo depth {focal / 150:.2f} m)" in shown.out
