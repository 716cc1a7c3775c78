"""The checks before a training: good for a good configuration, and a sentence for a bad one."""

import re

import cv2
import pytest

from zoerefine.base.config import load_config
from zoerefine.cli import main
from zoerefine.depth.training.check.checks import (
    MAX_STEPS,
    MIN_SAMPLES,
    MIN_STEPS,
    TrainingChecks,
    choose_pace,
)

pytestmark = pytest.mark.numeric

NO_LIMIT = 1e9  # seconds; short trainings then have full batches and MAX_STEPS, on any machine


@pytest.fixture
def checks(tiny, tmp_path):
    """The checks of the tiny configuration: checks("TRAIN.LR", 0.01)."""

    def make(*words):
        words = ["LOADER.BATCH", 8, "TRAIN.PRECISION", "fp32", *words]
        cfg = load_config(tiny, list(map(str, words)))
        return TrainingChecks(cfg, tmp_path / "check", NO_LIMIT)

    return make


def check(tiny, capsys, *words):
    """Exit code and output of the command, the words of each table cell joined."""
    code = main(["check", "--config", str(tiny), "TRAIN.PRECISION", "fp32", *map(str, words)])
    printed = capsys.readouterr()
    assert "10 checks, about" in printed.err  # the estimate
    return code, " ".join(printed.out.replace("│", " ").split())


def test_every_check_is_run_and_drawn(tiny, capsys, tmp_path):
    code, text = check(tiny, capsys, "LOADER.BATCH", 8, "--limit", 60)
    assert code in (0, 1)  # waits depend on the machine
    for name in ("a batch, drawn", "loss before training", "samples do not mix", "gradients",
                 "memory", "overfits one batch", "learning rate", "waits for data",
                 "pseudo depth matters", "pictures matter"):  # fmt: skip
        assert name in text, name
    assert "reach all" in text
    assert "depends on its own picture only" in text
    assert cv2.imread(str(tmp_path / "check" / "batch.png")) is not None
    assert not (tmp_path / "runs").exists()


def test_a_good_learning_rate_raises_no_alarm(checks, tmp_path):
    good = checks("TRAIN.LR", 0.003)
    assert good.overfits_one_batch()[0] == "good"
    assert good.learning_rate()[0] == "good"
    assert cv2.imread(str(tmp_path / "check" / "learning_rate.png")) is not None


def test_a_learning_rate_that_is_far_too_high_is_named_with_a_better_one(checks):
    verdict, text = checks("TRAIN.LR", 3.0).learning_rate()
    assert verdict == "look"
    assert float(re.search(r": try (\S+)", text)[1]) < 1


def test_a_learning_rate_that_is_far_too_low_is_seen_in_a_single_batch(checks):
    verdict, text = checks("TRAIN.LR", 1e-7).overfits_one_batch()
    assert verdict == "look"
    assert "change TRAIN.LR" in text


def test_a_network_that_ignores_pictures_is_seen(checks):
    found = checks("MODEL.NAME", "tests.depth.training.networks:DepthOnly", "TRAIN.LR", 0.03)
    assert found.pseudo_depth_matters()[0] == "good"
    verdict, text = found.pictures_matter()
    assert verdict == "unclear"
    assert "within the noise" in text


def test_a_network_that_ignores_the_pseudo_depth_is_seen(checks):
    found = checks("MODEL.NAME", "tests.depth.training.networks:PictureOnly", "MODEL.MAX_LOG", 9)
    assert found.pseudo_depth_matters()[0] != "good"
    assert found.samples_do_not_mix()[0] == "good"


def test_a_network_without_gradients_is_seen(checks):
    verdict, text = checks("MODEL.NAME", "tests.depth.training.networks:PartlyUnused").gradients()
    assert verdict == "look"
    assert "backbone.unused" in text


def test_parts_of_a_batch_take_less_memory(checks):
    def largest(*words):
        return int(re.search(r"up to about (\d+)", checks(*words).memory()[1])[1])

    assert largest("TRAIN.ACCUMULATE", 4) > 2.5 * largest()


def test_checks_that_do_not_fit_the_limit_are_skipped_and_say_so(tiny, capsys):
    code, text = check(tiny, capsys, "--limit", 1e-6)
    assert code == 0
    assert text.count("skipped") == 9  # all but the drawing of a batch
    assert text.count("raise --limit") == 9


@pytest.mark.parametrize(
    ("sample_s", "samples", "parts", "steps"),
    [
        (1e-4, 64, 1, MAX_STEPS),  # a GPU: full batches
        (0.005, 64, 1, MAX_STEPS),
        (0.01, 64, 1, 35),
        (0.05, 64, 4, 28),  # a CPU: fewer samples rather than too few steps
        (3.0, 64, 64 // MIN_SAMPLES, MIN_STEPS),
        (0.1, 1, 1, MAX_STEPS),
    ],
)
def test_short_trainings_fit_the_limit_while_they_have_enough_samples_and_steps(
    sample_s, samples, parts, steps
):
    pace = choose_pace(sample_s, samples, 180)
    assert (pace.parts, pace.steps) == (parts, steps)
    assert pace.step_s == pytest.approx(sample_s * samples / parts)
