"""Metric points in training: what is simulated, what the refiner sees, what the results say."""

from functools import partial

import numpy as np
import pytest
import torch

from tests.depth_fixtures import train_tiny
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.registries import POINT_KINDS
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.model import build_refiner
from zoerefine.depth.training.point_inputs import correct, training_points

MODEL = {"NAME": "small", "BASE": 4, "MAX_LOG": 1.0, "CONFIDENCE": True, "POINTS": True}


@pytest.fixture
def batch():
    """Eight frames, with true depth everywhere but in the upper rows."""
    generator = torch.Generator().manual_seed(0)
    depth_m = 1 + 3 * torch.rand(8, 1, 24, 32, generator=generator)
    depth_m[:, :, :4] = 0
    rgb01 = torch.rand(8, 3, 24, 32, generator=generator)
    objects = torch.zeros(8, 1, 24, 32, dtype=torch.uint8)
    return DeviceBatch(rgb01, depth_m.clamp(min=1) * 0.7, depth_m, objects, torch.arange(8))


def points(**changes):
    options = {"kinds": tuple(POINT_KINDS), "most": 40, "none": 0.0, "noise": 0.0, "outliers": 0.0}
    keys = {name.upper(): value for name, value in (options | changes).items()}
    return partial(training_points, load_config({"POINTS": keys}).POINTS)


def test_a_frames_points_do_not_depend_on_its_batch(batch):
    simulated = points(noise=0.1, outliers=0.2, none=0.3)(batch, 7, 3)
    for start in (0, 5):
        part = DeviceBatch(*(one[start:] for one in (
            batch.rgb01, batch.zoe_m, batch.depth_m, batch.objects, batch.index
        )))  # fmt: skip
        torch.testing.assert_close(points(noise=0.1, outliers=0.2, none=0.3)(part, 7, 3),
                                   simulated[start:], rtol=0, atol=0)  # fmt: skip
    assert (points(noise=0.1)(batch, 7, 4) != points(noise=0.1)(batch, 7, 3)).any()
    assert (points(noise=0.1)(batch, 8, 3) != points(noise=0.1)(batch, 7, 3)).any()


@pytest.mark.parametrize("kind", [one for one in POINT_KINDS if one != "zones"])
def test_points_without_noise_are_the_true_depth(batch, kind):
    found = points(kinds=(kind,))(batch, 0, 0)
    counts = (found[..., 2] > 0).sum(1)
    assert counts.max() > 1 and counts.max() <= 40
    for truth_m, of_frame in zip(batch.depth_m[:, 0], found, strict=True):
        there = of_frame[of_frame[:, 2] > 0]
        x, y = there[:, 0].long(), there[:, 1].long()
        assert (truth_m[y, x] == there[:, 2]).all()


def test_the_share_of_frames_without_points_is_as_configured(batch):
    simulate = points(none=0.4, kinds=("random",), most=8)
    none = [(simulate(batch, 0, epoch)[..., 2] == 0).all(1).float().mean() for epoch in range(60)]
    assert 0.3 < float(np.mean(none)) < 0.5  # of 480 frames: five standard deviations


def test_frames_without_points_are_as_they_were(batch):
    seen = correct(batch, points(none=1.0)(batch, 0, 0))
    assert (seen.zoe_m == batch.zoe_m).all()
    refiner = build_refiner(MODEL).eval()
    refiner.get_buffer("trained").fill_(True)
    torch.testing.assert_close(
        refiner(seen.picture01, seen.zoe_m), refiner(batch.rgb01, batch.zoe_m), rtol=0, atol=0
    )


def test_points_and_their_own_calibration_change_the_depth(batch):
    seen = correct(batch, points(kinds=("random",))(batch, 0, 0))
    refiner = build_refiner(MODEL).eval()
    assert (refiner(seen.picture01, seen.zoe_m) == seen.zoe_m).all()  # untrained
    refiner.get_buffer("trained").fill_(True)
    refiner.get_buffer("log_factor").fill_(0.5)
    refiner.get_buffer("strength").fill_(0.0)
    refiner.get_buffer("point_strength").fill_(0.0)
    torch.testing.assert_close(refiner(seen.picture01, seen.zoe_m), seen.zoe_m)
    torch.testing.assert_close(
        refiner(batch.rgb01, batch.zoe_m), batch.zoe_m * np.exp(np.float32(0.5))
    )


def test_a_network_without_an_input_for_points_is_refused():
    model = MODEL | {"NAME": "tests.depth.training.networks:Dropping"}
    with pytest.raises(UserError, match="takes no metric points"):
        build_refiner(model)


def test_results_say_what_points_reach(world, tmp_path):
    def train(name, *words):
        run = train_tiny(tmp_path, world, *words, "RUN.ROOT", str(tmp_path / name))
        return run, run.results()

    run, found = train("a", "TRAIN.EPOCHS", "2", "MODEL.POINTS", "True")
    for which in ("points", "refined_points"):
        assert 0 < found["test"][which]["abs_rel"] < 0.7 * found["test"]["pseudo"]["abs_rel"]
    assert set(found["calibration"]["points"]) >= {"strength", "limit", "abs_rel"}
    again, _ = train("b", "TRAIN.EPOCHS", "2", "MODEL.POINTS", "True")
    assert run.weights_digest_file.read_text() == again.weights_digest_file.read_text()
    _, without = train("c", "TRAIN.EPOCHS", "1", "POINTS.EVALUATED", "0")
    assert "points" not in without["test"] and "points" not in without["calibration"]
