"""benchmarks/stream.py: its flicker is that of benchmarks/rooms.py, and motion is measured."""

from pathlib import Path

import cv2
import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
HEIGHT, WIDTH = 96, 128


@pytest.fixture
def stream(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import stream

    return stream


def test_flicker_is_the_mean_change_of_log_error_between_frames(stream):
    means, truth_m = stream.Means(), np.full((HEIGHT, WIDTH), 2.0, np.float32)
    zoe = np.full((HEIGHT, WIDTH), 512, np.uint16)
    for clip, factor in (("a", 1.0), ("a", 1.125), ("a", 1.0), ("b", 2.0)):
        means.add("side", clip, (zoe * factor).astype(np.uint16), zoe, truth_m)
    ((clip, (flicker, abs_rel)),) = means.compute()["side"].items()  # b has no neighbours
    assert clip == "a"
    assert flicker == pytest.approx(np.log(1.125), abs=1e-5)
    assert abs_rel == pytest.approx(0.125 / 3, abs=1e-5)


@pytest.mark.numeric
def test_the_usual_motion_is_that_of_the_picture_in_widths(stream):
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (12, 24, 3)).astype(np.uint8)
    wide = cv2.resize(coarse, (2 * WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    depth = np.full((HEIGHT, WIDTH), 500, np.uint16)
    pictures = [(np.ascontiguousarray(wide[:, x : x + WIDTH]), depth, None)
                for x in range(0, 20, 4)]  # fmt: skip
    assert stream.usual_motion(pictures) == pytest.approx(4 / WIDTH, rel=0.3)
    assert stream.usual_motion([pictures[0]] * 3) == pytest.approx(0, abs=1e-3)
