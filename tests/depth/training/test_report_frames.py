"""Held-out frames of a run in the report and in the picture of `diff`."""

import csv

import numpy as np
import pytest

from zoerefine.base.files.images import read_rgb
from zoerefine.cli import main
from zoerefine.lab.analysis.analyze import analyze

SMALLER = ("LOADER.HEIGHT", 16, "LOADER.WIDTH", 24)  # than the cache's pictures


def test_frames_are_measured_at_the_size_of_the_training(train):
    """The report shows the four frames of the test scene, whose means results.json has."""
    run = train(*SMALLER)
    analyze([str(run.path)], run.path / "report")
    with open(run.path / "report" / "frames.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for which in ("pseudo", "refined"):
        is_pseudo = which == "pseudo"
        found = [float(row["abs_rel"]) for row in rows if is_pseudo == (row["run"] == "")]
        assert len(found) == 4
        assert np.mean(found) == pytest.approx(run.results()["test"][which]["abs_rel"], rel=1e-4)


def test_runs_of_two_sizes_are_drawn_side_by_side(train):
    first, second = train(name="first"), train(*SMALLER, name="second")
    assert main(["diff", str(first.path), str(second.path), "--picture", "a.png"]) == 0
    assert read_rgb("a.png").std() > 10
