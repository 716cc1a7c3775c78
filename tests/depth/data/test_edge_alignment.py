"""Whether depth jumps lie on colour edges: the shift is found, and only a clear one is reported."""

import numpy as np
import pytest

from zoerefine.base.files.images import read_values, write_png
from zoerefine.depth.data.inspect.edge_alignment import best_alignment, depth_jumps
from zoerefine.depth.data.inspect.inspection import inspect
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.synthetic import synthesize


def boxes(seed):
    """A picture of grey boxes before a noisy wall, and its depth in millimetres."""
    rng = np.random.default_rng(seed)
    grey = rng.normal(60, 4, (120, 160))
    depth = np.full((120, 160), 4000, np.uint16)
    for _ in range(5):
        y, x = rng.integers(10, 80), rng.integers(10, 120)
        area = np.s_[y : y + 30, x : x + 30]
        grey[area] += rng.integers(40, 90)
        depth[area] = rng.integers(1000, 3000)
    return np.stack([grey.clip(0, 255).astype(np.uint8)] * 3, -1), depth


@pytest.mark.parametrize(
    ("x", "y", "is_off"), [(0, 0, False), (2, -1, False), (4, 0, True), (-5, 3, True)]
)
def test_the_shift_between_colour_and_depth_is_found(x, y, is_off):
    frames = [boxes(seed) for seed in range(4)]
    found = best_alignment((np.roll(rgb, (y, x), (0, 1)), depth) for rgb, depth in frames)
    # A jump marks both of its pixels, so the best place is at most one pixel off.
    assert abs(found.shift_x - x) <= 1 and abs(found.shift_y - y) <= 1
    assert found.is_off == is_off
    assert found.frames == 4
    assert found.rank > 0.9


def test_frames_without_jumps_or_without_valid_depth_say_nothing():
    rgb, depth = boxes(0)
    assert best_alignment([(rgb, np.full_like(depth, 2000)), (rgb, np.zeros_like(depth))]) is None
    assert best_alignment([(rgb[:8, :8], depth[:8, :8])]) is None


def test_colour_without_edges_is_not_reported_as_shifted():
    rgb, depth = boxes(0)
    assert not best_alignment([(np.full_like(rgb, 90), depth)]).is_off


def test_an_invalid_pixel_makes_no_jump():
    depth = np.array([[1000, 0, 2000, 2100, 3000]], np.uint16)
    np.testing.assert_array_equal(depth_jumps(depth), [[False, False, False, True, True]])


def test_inspect_warns_of_depth_that_is_shifted_against_its_colour(tmp_path):
    root = tmp_path / "world"
    synthesize(root, scenes=2, clips=1, frames=3, seed=0, height=120, width=160)
    report, faults = inspect(open_dataset(root))
    assert "colour and depth edges: best with colour shifted by +0,+0 px" in report
    assert "WARNING: colour and depth" not in report
    for path in (root / habitatdyn.DEPTH).rglob("*.png"):
        write_png(path, np.roll(read_values(path), 5, 1))
    report, shifted_faults = inspect(open_dataset(root))
    assert "colour and depth edges: best with colour shifted by -5,+0 px" in report
    assert "WARNING: colour and depth are 3 px or more apart" in report
    assert faults == shifted_faults
