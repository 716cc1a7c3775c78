"""Simulated points: they are the truth where they say so, and the same at every call."""

import numpy as np
import pytest

from zoerefine.base.errors import UserError
from zoerefine.base.registries import POINT_KINDS
from zoerefine.cli import main
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.metric_points import PointFiles
from zoerefine.depth.points.simulate import PointSimulation, simulated, truth_and_picture


@pytest.fixture(scope="module")
def frame(world):
    dataset = open_dataset(world)
    return truth_and_picture(dataset, dataset.frames[0])


@pytest.mark.parametrize("kind", POINT_KINDS)
def test_points_without_noise_are_the_true_depth(frame, kind):
    truth_m, rgb = frame
    points = simulated(PointSimulation(kind, count=20, noise=0), truth_m, rgb, "a")
    assert len(points) > 5
    if kind == "zones":
        assert len(points) <= 64
        low, high = truth_m[truth_m > 0].min(), truth_m.max()
        assert ((points.depth_m > low - 1e-3) & (points.depth_m < high)).all()
    else:
        assert len(points) <= 20
        at = truth_m[points.y.astype(int), points.x.astype(int)].astype(np.float32)
        np.testing.assert_array_equal(points.depth_m, at)


def test_noise_and_outliers_are_as_large_as_stated(frame):
    truth_m, rgb = frame
    simulation = PointSimulation(count=2000, noise=0.05, outliers=0.25)
    points = simulated(simulation, truth_m, rgb, "a")
    at = truth_m[points.y.astype(int), points.x.astype(int)]
    relative = points.depth_m / at - 1
    near = np.abs(relative) < 0.2  # four standard deviations
    assert 0.65 < near.mean() < 0.9
    assert 0.04 < relative[near].std() < 0.08


def test_the_command_writes_the_same_points_again(world, tmp_path, capsys):
    words = ["data", "points", str(world), "--count", "9", "--outliers", "0.1", "--out"]
    for name in ("a", "b"):
        assert main([*words, str(tmp_path / name)]) == 0
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.csv"))
    dataset = open_dataset(world)
    assert len(files) == len(dataset.frames)
    assert f"{len(files)} of {len(files)} frames have true depth" in capsys.readouterr().out
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    truth_m, _ = truth_and_picture(dataset, dataset.frames[0])
    assert len(PointFiles(tmp_path / "a").read(str(files[0])[:-4], *truth_m.shape)) == 9


def test_points_that_may_have_been_measured_are_not_overwritten(world, tmp_path, capsys):
    words = ["data", "points", str(world), "--out", str(tmp_path)]
    assert main(words) == 0
    measured = next(tmp_path.rglob("*.csv"))
    measured.write_text("x,y,metres\n1,2,3\n")
    assert main(words) != 0
    assert f"{measured} has other points: give another --out" in capsys.readouterr().err
    assert measured.read_text() == "x,y,metres\n1,2,3\n"


def test_an_impossible_simulation_is_refused():
    with pytest.raises(UserError, match="no points of kind 'stars'; known: random"):
        PointSimulation("stars")
    with pytest.raises(UserError, match="shares, 0 to 1"):
        PointSimulation(noise=float("nan"))


@pytest.mark.parametrize("seed, limit", [("-1", "least 0"), (str(2**63), "most 2^63 - 1")])
def test_a_wrong_seed_is_one_line(tmp_path, capsys, seed, limit):
    with pytest.raises(SystemExit):
        main(["data", "points", "any", "--out", str(tmp_path), "--seed", seed])
    assert f"argument --seed: must be at {limit}, got {seed}" in capsys.readouterr().err
