"""TorchScript engines with the fuser of CUDA builds of torch (NNC), forced on for the CPU."""

import re
import sys
from pathlib import Path

import pytest

from tests.processes import run_program
from zoerefine.base.registries import NETWORKS

pytestmark = pytest.mark.numeric

PROGRAM = Path(__file__).with_name("run_with_gpu_fuser.py")
LINE = re.compile(r"\w+ (\w+): ([\d.]+) and ([\d.]+) of (\d+), (\d+) groups")
ALLOWED = {"fp32": 0.01, "bf16": 2.0, "fp16": 0.5, "processing": 0.01}  # depth, in 1/256 m
SPREAD_ALLOWED = {"fp32": 0.1, "bf16": 30.0, "fp16": 5.0, "processing": 0.1}  # in 1/10000


@pytest.mark.parametrize("network", NETWORKS)
def test_every_precision_batch_and_size_runs_many_times_and_agrees_with_eager(network):
    """In a process of its own, for which the fuser is switched on."""
    done = run_program([sys.executable, PROGRAM, network])
    found = {precision: figures for precision, *figures in LINE.findall(done.stdout)}
    assert set(found) == set(ALLOWED)
    for precision, (difference, of_spread, change, groups) in found.items():
        assert int(groups) > 0, f"{precision}: nothing was fused, so nothing was tested"
        assert int(change) > 50, f"{precision}: eager returns its input"
        assert float(difference) <= ALLOWED[precision]
        assert float(of_spread) <= SPREAD_ALLOWED[precision]
