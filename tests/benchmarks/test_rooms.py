"""benchmarks/rooms.py: folds, what is measured of a depth, and the program from end to end."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.processes import run_program
from zoerefine.base.errors import UserError
from zoerefine.depth.data.dataset import Clip
from zoerefine.depth.data.loading.prefetch import DeviceBatch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CLIP = Clip("clip", "room")


@pytest.fixture(autouse=True)
def parts_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def batch_of(truth_m, zoe_m):
    """A batch of given depths, [B, H, W]."""
    rgb01 = torch.zeros(len(truth_m), 3, *truth_m.shape[1:])
    objects = torch.zeros(len(truth_m), 1, *truth_m.shape[1:], dtype=torch.uint8)
    index = torch.arange(len(truth_m))
    return DeviceBatch(rgb01, zoe_m[:, None], truth_m[:, None], objects, index)


def means_of(depth_m, truth_m, clips=None, spread=None):
    """Each figure of one room."""
    from common.rooms.figures import Predicted, RoomMeans

    means = RoomMeans()
    batch = batch_of(truth_m, truth_m)
    predicted = Predicted(depth_m[:, None], None if spread is None else spread[:, None])
    means.add(predicted, batch, clips or [CLIP] * len(truth_m))
    return means.compute()["room"]


def test_every_room_of_the_data_is_in_exactly_one_fold(tmp_path):
    from common.rooms.folds import read_folds

    folds = tmp_path / "folds.json"
    folds.write_text(json.dumps({"folds": [["house_*"], ["*_5", "shed"]]}))
    assert read_folds(folds, ("house_1", "room_5", "shed")) == [("house_1",), ("room_5", "shed")]
    with pytest.raises(UserError, match="scene house_5 is in 2 folds"):
        read_folds(folds, ("house_5",))
    with pytest.raises(UserError, match="scene barn is in 0 folds"):
        read_folds(folds, ("barn",))


def test_one_building_is_in_one_fold():
    from common.rooms.folds import read_folds

    names = ("ist_lab", "ist_desk", "ist_rug", "ist_corridor", "ist_shelf", "ist_table")
    folds = read_folds(BENCHMARKS / "rooms_folds.json", names)
    assert sorted(len(fold) for fold in folds) == [0, 0, 0, 0, 6]


def test_flicker_is_the_change_that_the_truth_does_not_have():
    truth = torch.full((3, 24, 32), 2.0)
    truth[1:] *= 1.05  # the camera moves a little: the truth changes
    assert means_of(truth * 1.5, truth)["flicker"] == pytest.approx(0, abs=1e-6)
    unsteady = truth * torch.tensor([1.0, 1.1, 1.0])[:, None, None]
    assert means_of(unsteady, truth)["flicker"] == pytest.approx(math.log(1.1), abs=1e-5)


def test_frames_that_do_not_follow_each_other_have_no_flicker():
    truth = torch.full((2, 24, 32), 2.0)
    assert "flicker" not in means_of(truth, truth, [CLIP, Clip("other", "room")])
    truth[1] = 4.0  # another view
    assert "flicker" not in means_of(truth, truth)


def test_the_border_ring_is_measured_apart_from_the_inside():
    truth = torch.full((1, 100, 100), 2.0)
    depth = truth * 1.5
    depth[:, 8:-8, 8:-8] = 2.0
    found = means_of(depth, truth)
    assert found["border ring"] == pytest.approx(0.5)
    assert found["inside"] == pytest.approx(0)
    truth[:, :8], truth[:, -8:], truth[..., :8], truth[..., -8:] = 0, 0, 0, 0  # not measured
    assert "border ring" not in means_of(depth, truth)


def test_coverage_counts_valid_pixels_inside_the_band():
    truth = torch.full((1, 24, 32), 2.0)
    truth[:, :12] = 0
    depth = torch.full_like(truth, 2.0)
    depth[..., :8] = 2.2
    found = means_of(depth, truth, spread=torch.full_like(truth, 0.05))
    assert found["coverage of the 90% band"] == pytest.approx(0.75)


def test_the_best_factor_of_a_frame_is_the_best():
    from common.rooms.sides import best_of_each_frame

    rng = np.random.default_rng(0)
    truth = torch.from_numpy(rng.uniform(1, 5, (1, 24, 32))).float()
    zoe = truth * torch.from_numpy(rng.lognormal(0.5, 0.4, truth.shape)).float()
    found = best_of_each_frame(batch_of(truth, zoe)).depth_m[0, 0] / zoe[0]
    error = lambda factor: ((factor * zoe - truth).abs() / truth).mean().item()  # noqa: E731
    grid = min(error(factor) for factor in np.linspace(0.2, 2, 400))
    assert error(found) <= grid + 1e-6


def test_the_whole_benchmark_runs_on_a_small_world(tmp_path):
    rows = tmp_path / "rows.json"
    command = [sys.executable, "-W", "ignore", BENCHMARKS / "rooms.py", "--quick", "--json", rows,
               "CACHE.HEIGHT", "64", "CACHE.WIDTH", "96", "MODEL.BASE", "4"]  # fmt: skip
    done = run_program(command)
    *figures, _machine = json.loads(rows.read_text())
    found = {row["measure"]: row for row in figures}
    assert found["rooms"]["value"] == 4  # two folds of ten rooms in five
    assert found["refined, of the single factor"]["goal"] == "at most 0.75"
    assert found["refined: coverage of the 90% band"]["goal"] == "0.85 to 0.95"
    assert "mean over rooms: best factor of each frame: SILog" in found
    for line in ("pseudo depth", "refined, another's pseudo depth"):
        assert line in done.stdout
