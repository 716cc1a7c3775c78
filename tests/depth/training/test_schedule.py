"""Learning-rate schedules: their shapes, and torch's own where it has the same one."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.registries import SCHEDULES
from zoerefine.depth.training.optimizer import make_optimizer
from zoerefine.depth.training.schedule import Schedule


def configured(**keys):
    """The TRAIN keys of a config that sets some of them."""
    return load_config({"TRAIN": keys}).TRAIN


def made(steps, **keys):
    """The schedule of a run of so many steps that sets some keys of TRAIN."""
    return Schedule(configured(**{"LR": 1.0, "WARMUP": 0.0, **keys}), steps)


def rates(**keys):
    """Those of the 100 steps of a run that sets some keys of TRAIN."""
    schedule = made(100, **keys)
    return [schedule.rate(step) for step in range(100)]


@given(st.sampled_from(list(SCHEDULES)), st.integers(1, 300), st.floats(0, 1))
def test_rates_are_positive_and_never_above_the_peak(name, steps, warmup):
    schedule = made(steps, SCHEDULE=name, LR=2.0, WARMUP=warmup, STEP_AT=[0.5])
    found = [schedule.rate(step) for step in range(steps)]
    assert all(0 <= rate <= 2.0 + 1e-12 for rate in found)
    assert found[0] > 0


def test_a_cosine_rises_in_a_line_and_falls_to_zero():
    schedule = made(110, SCHEDULE="cosine", WARMUP=10 / 110)
    assert [schedule.rate(step) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert schedule.rate(60) == pytest.approx(0.5)
    assert schedule.rate(109) < 0.001


def test_one_cycle_is_torchs():
    steps, weight = 200, torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps + 1)
    ours = made(steps, SCHEDULE="onecycle", LR=0.1)
    for step in range(steps):
        assert ours.rate(step) == pytest.approx(theirs.get_last_lr()[0], abs=2e-3)
        optimizer.step()
        theirs.step()


def test_steps_divide_by_ten_and_constant_stays():
    # Shares of the run, warm-up included.
    warmed = made(100, SCHEDULE="step", WARMUP=0.2, STEP_AT=[0.5, 0.8])
    assert [warmed.rate(k) for k in (49, 50, 79, 80)] == pytest.approx([1.0, 0.1, 0.1, 0.01])
    assert made(100, SCHEDULE="constant").rate(99) == 1.0


def test_the_decay_of_each_schedule_is_configured():
    step = rates(SCHEDULE="step", STEP_AT=[0.5], STEP_FACTOR=0.25)
    assert (step[49], step[50], step[99]) == (1.0, 0.25, 0.25)
    cosine = rates(SCHEDULE="cosine", COSINE_END=0.2)
    assert cosine[0] == 1.0 and 0.2 < cosine[99] < 0.21
    cycle = rates(SCHEDULE="onecycle", CYCLE_RISE=0.5, CYCLE_START=0.5, CYCLE_END=0.1)
    assert cycle[0] == 0.5 and cycle[50] == 1.0 and 0.1 < cycle[99] < 0.11


def test_the_defaults_give_the_rates_of_the_plain_formulas_bit_for_bit():
    """As they were before these keys existed."""
    cosine = rates(LR=0.003)
    for k in range(99):  # after a warm-up of one step
        assert cosine[k + 1] == 0.003 * ((1 + math.cos(math.pi * (k / 99))) / 2)
    for k, rate in enumerate(rates(LR=0.003, SCHEDULE="step")):
        assert rate == 0.003 * 0.1 ** sum(k / 100 >= at for at in (0.6, 0.85))


def test_the_optimizers_constants_are_configured_and_default_to_torchs():
    weights = [torch.nn.Parameter(torch.zeros(1))]
    plain = make_optimizer(configured(), weights).defaults
    torchs = torch.optim.AdamW(weights, 1e-3, weight_decay=1e-4).defaults
    assert plain | {"fused": None} == torchs  # fused is chosen by device, with equal formulas
    other = make_optimizer(configured(BETA1=0.8, BETA2=0.95, EPS=1e-6), weights).defaults
    assert (other["betas"], other["eps"]) == ((0.8, 0.95), 1e-6)


@pytest.mark.parametrize(
    "key, value", [("BETA1", 1), ("BETA2", -0.1), ("EPS", 0), ("STEP_FACTOR", 0),
                   ("STEP_FACTOR", 1.5), ("COSINE_END", 2), ("CYCLE_RISE", 1),
                   ("CYCLE_START", 0), ("CYCLE_END", 2)]
)  # fmt: skip
def test_constants_that_cannot_work_are_refused(key, value):
    with pytest.raises(UserError, match=rf"TRAIN\.{key} must be a number"):
        configured(**{key: value})
