"""benchmarks/on_gpu on a machine without a GPU: it says so, and its parts that need none run."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ON_GPU = Path(__file__).resolve().parents[2] / "benchmarks" / "on_gpu"


def on_gpu(*words):
    command = [sys.executable, "-W", "ignore", ON_GPU, *words]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_is_one_line():
    done = on_gpu()
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert "finds no GPU: nothing to measure" in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_section_runs_and_names_what_it_could_not_measure():
    done = on_gpu("engines", "embedded", "--try-on-cpu")
    assert done.returncode == 0, done.stderr
    assert "batch 1 torchscript bf16: p50" in done.stdout
    assert "CUDA graph of eager fp32: failed: CUDA graphs need a GPU" in done.stdout
    assert "TensorRT: not measured: " in done.stdout
