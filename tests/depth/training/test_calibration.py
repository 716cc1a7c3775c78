"""Calibration on validation scenes: what it chooses, that it repeats its bits, what is said."""

import math

import numpy as np
import pytest
import torch

from zoerefine.depth.training import calibration, checkpoint, ending
from zoerefine.depth.training.checkpoint import load_refiner
from zoerefine.depth.training.evaluate import COVERAGE
from zoerefine.depth.training.verdict import calibration_line

pytestmark = pytest.mark.numeric


def frame(index, scene, best, size=0.1):
    """A frame whose AbsRel is least at the strength `best`."""
    return calibration.FrameErrors(
        index, scene, size, tuple(0.1 + (calibration.STRENGTHS - best) ** 2)
    )


def chosen(*frames, limit=math.inf):
    return calibration.STRENGTHS[
        calibration.choose(calibration.scene_table(frames, limit), calibration.MOST_WORSE)
    ]


def test_the_strength_with_the_least_error_is_used_with_few_scenes():
    assert chosen(frame(0, "a", 0.4), frame(1, "b", 0.8)) == pytest.approx(0.6)


def test_scenes_count_the_same_whatever_their_frames():
    many = [frame(index, "a", 0.2) for index in range(9)]
    assert chosen(*many, frame(9, "b", 0.8)) == pytest.approx(0.5)


def test_scenes_that_agree_give_the_best_strength_and_others_a_smaller_one():
    agreeing = [frame(k, str(k), 0.8) for k in range(4)]
    assert chosen(*agreeing) == pytest.approx(0.8)
    differing = [frame(k, str(k), best) for k, best in enumerate((0.4, 1.0, 0.3, 0.9))]
    assert 0 < chosen(*differing) < 0.6


def test_a_frame_beyond_the_limit_is_corrected_less():
    table = calibration.scene_table([frame(0, "a", 1.0, size=0.4)], limit=0.2)
    assert table[0, -1] == pytest.approx(0.1 + 0.75**2, abs=1e-3)  # a quarter of the correction


def test_90_percent_of_the_validation_pixels_lie_inside_the_band(finished):
    val = finished.results()["val"]
    shares = [scene["refined"][COVERAGE] for scene in val["scenes"].values()]
    assert np.mean(shares) == pytest.approx(0.9, abs=0.01)


def test_the_stored_calibration_is_the_reported_one(finished):
    refiner, found = load_refiner(finished), finished.results()["calibration"]
    for name in ("log_factor", "strength", "limit", "spread_factor"):
        assert refiner.get_buffer(name).item() == pytest.approx(found[name])
    assert found["log_factor"] == finished.results()["log_scale"]


def test_a_refiner_that_only_harms_falls_back_to_the_single_factor(trainer):
    made = trainer("TRAIN.PRECISION", "fp32")
    made.weights.trained.fill_(True)
    torch.nn.init.constant_(made.weights.get_parameter("backbone.head.bias"), 30.0)
    assert made.calibrate()["strength"] == 0
    val = made.evaluate(made.split.val)
    assert val["refined"]["abs_rel"] == pytest.approx(val["global_scale"]["abs_rel"], rel=1e-5)


@pytest.mark.parametrize("moment", ["before the weights are replaced", "after it"])
def test_a_kill_during_the_calibration_leaves_a_run_that_ends_with_the_same_bits(
    train, finished, monkeypatch, moment
):
    def killed(*_):
        raise KeyboardInterrupt

    words = ["TRAIN.PRECISION", "fp32", "TRAIN.CALIBRATE", "true"]
    with monkeypatch.context() as patched:
        if moment == "after it":
            real = ending.save_best
            patched.setattr(ending, "save_best", lambda *of: (real(*of), killed()))
        else:
            patched.setattr(
                ending, "save_best",
                lambda *of: patched.setattr(checkpoint, "save", killed)
                or checkpoint.save_best(*of),
            )  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            train(*words)
    run = train(*words)
    assert run.weights_digest_file.read_text() == finished.weights_digest_file.read_text()
    assert run.results()["calibration"] == finished.results()["calibration"]


def test_without_validation_scenes_nothing_is_calibrated_and_one_line_says_so(train, capsys):
    run = train("DATA.VAL_FRACTION", 0.0, "TRAIN.STEPS", 1)
    results = run.results()
    assert results["calibration"] is None
    assert load_refiner(run).strength == 1
    assert capsys.readouterr().err.count("not calibrated (no validation scenes)") == 1


def test_calibration_can_be_switched_off(train):
    results = train("TRAIN.CALIBRATE", "false", "TRAIN.STEPS", 1).results()
    assert results["calibration"] is None
    assert "TRAIN.CALIBRATE is off" in calibration_line(results)


@pytest.mark.parametrize(
    ("strength", "words"),
    [(0.4, "the correction is used at 40% strength"), (0.0, "the bundle is the single factor")],
)
def test_the_strength_is_said_in_words(strength, words):
    errors = {"single_factor": 0.3, "calibrated": 0.25, "full_strength": 0.4}
    found = {"strength": strength, "scenes": 5, "abs_rel": errors}
    assert words in calibration_line({"calibration": found, "log_scale": 0.0})
    line = calibration_line({"calibration": found | {"scenes": 1}, "log_scale": 0.0})
    assert "on 1 validation scene, mean" in line
