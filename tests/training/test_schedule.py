"""Learning-rate schedules: their shapes, and torch's own where it has the same one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoerefine.registries import SCHEDULES
from zoerefine.training.schedule import Schedule


@given(
    name=st.sampled_from(list(SCHEDULES)),
    steps=st.integers(1, 300),
    warmup=st.floats(0, 1),
)
def test_rates_are_positive_and_never_above_the_peak(name, steps, warmup):
    schedule = Schedule(name, 2.0, steps, warmup, (0.5,))
    rates = [schedule.rate(step) for step in range(steps)]
    assert all(0 <= rate <= 2.0 + 1e-12 for rate in rates)
    assert rates[0] > 0


def test_a_cosine_rises_in_a_line_and_falls_to_zero():
    schedule = Schedule("cosine", 1.0, 110, 10 / 110)
    assert [schedule.rate(step) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert schedule.rate(60) == pytest.approx(0.5)
    assert schedule.rate(109) < 0.001


def test_one_cycle_is_torchs():
    steps, weight = 200, torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps + 1)
    ours = Schedule("onecycle", 0.1, steps, 0.0)
    for step in range(steps):
        assert ours.rate(step) == pytest.approx(theirs.get_last_lr()[0], abs=2e-3)
        optimizer.step()
        theirs.step()


def test_steps_divide_by_ten_and_constant_stays():
    schedule = Schedule("step", 1.0, 100, 0.0, (0.5, 0.8))
    assert [schedule.rate(k) for k in (40, 60, 90)] == pytest.approx([1.0, 0.1, 0.01])
    warmed = Schedule("step", 1.0, 100, 0.2, (0.5, 0.8))  # shares of the run, warm-up included
    assert [warmed.rate(k) for k in (49, 50, 79, 80)] == pytest.approx([1.0, 0.1, 0.1, 0.01])
    assert Schedule("constant", 1.0, 100, 0.0).rate(99) == 1.0
