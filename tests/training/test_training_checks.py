"""The checks before a training: good where it is, and a sentence where it is not."""

import re

import cv2

from zoerefine.config import load_config
from zoerefine.training.training_checks import TrainingChecks


def test_parts_of_a_batch_take_less_memory(tiny, tmp_path):
    def largest(*words):
        text = (
            TrainingChecks(load_config(tiny, ["LOADER.BATCH", "8", *words]), tmp_path).memory().text
        )
        return int(re.search(r"up to about (\d+)", text)[1])

    assert largest("TRAIN.ACCUMULATE", "4") > 3 * largest()


def lines(done):
    """The table's text, each cell's words joined."""
    return " ".join(done.stdout.replace("│", " ").split())


def test_every_check_is_run_and_drawn(script_of, tiny, tmp_path):
    done = script_of("check", "--config", tiny, "LOADER.BATCH", 8, "TRAIN.LR", 0.003)
    assert done.returncode in (0, 1), done.stderr
    text = lines(done)
    for name in ("the batch, drawn", "loss before training", "samples kept apart", "gradients",
                 "overfits one batch", "pictures matter", "waits for data", "memory",
                 "learning rate"):  # fmt: skip
        assert name in text, name
    assert "reach all" in text
    assert "depends on its own picture alone" in text
    for name in ("batch.png", "learning_rate.png"):
        assert cv2.imread(str(tmp_path / "check" / name)) is not None
    assert not (tmp_path / "runs").exists()


def test_a_rate_that_is_far_too_high_and_one_too_low_are_named(script_of, tiny):
    high = script_of("check", "--config", tiny, "TRAIN.LR", 1.0)
    assert high.returncode == 1
    assert ": try " in lines(high)
    low = script_of("check", "--config", tiny, "TRAIN.LR", "1e-7")
    assert low.returncode == 1
    assert "raise TRAIN.LR or MODEL.BASE" in lines(low)
