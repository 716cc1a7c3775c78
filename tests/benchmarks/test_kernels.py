"""The numbers of kernels that benchmarks/kernels.py counts, and their aims."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.processes import run_program

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def figures(path, *words):
    """The program's figures with a goal: {measure: (value, whether the goal is met)}."""
    command = [sys.executable, "-W", "ignore", BENCHMARKS / "kernels.py", "--json", path, *words]
    run_program(command)
    rows = json.loads(path.read_text())[:-1]
    return {row["measure"]: (row["value"], row["ok"]) for row in rows if row["goal"]}


def test_a_call_and_a_validation_start_few_kernels(tmp_path):
    found = figures(tmp_path / "rows.json", "--quick")
    assert len(found) == 3
    assert all(ok and value > 0 for value, ok in found.values()), found


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_step_starts_few_kernels(tmp_path):
    found = figures(tmp_path / "rows.json")
    value, ok = found["step with TRAIN.COMPILE, with augmentation: kernels"]
    assert ok and value > 30


def test_operations_bytes_and_waits_are_counted(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import kernels

    values = torch.ones(2, 3)

    def work():
        total = (values.view(3, 2) * 2).t().sum()  # two kernels of 12 and 7 numbers
        return total.item(), values.cpu()

    rows = {row["measure"]: row["value"] for row in kernels.counted("work", work)}
    assert rows == {
        "work: kernels": 3,  # with that of item()
        "work: memory read and written": pytest.approx((12 + 7 + 1) * 4 / 1e6),
        "work: waits": 2,
    }
