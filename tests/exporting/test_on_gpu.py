"""benchmarks/on_gpu on a machine without a GPU: it says so, and its parts that need none run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ON_GPU = Path(__file__).resolve().parents[2] / "benchmarks" / "on_gpu"


NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def on_gpu(*words, **variables):
    command = [sys.executable, "-W", "ignore", ON_GPU, *words]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)


@NO_GPU
def test_without_a_gpu_small_versions_run_to_the_end():
    done = on_gpu("engines", "embedded", "training", "loading")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"no GPU: torch {torch.__version__} finds none.")
    assert "batch 1 torchscript bf16: p50" in done.stdout
    assert "CUDA graph of eager fp32: failed: CUDA graphs need a GPU" in done.stdout
    assert "TensorRT: not measured: " in done.stdout
    assert "training step, default settings: against plain eager fp32" in done.stdout
    assert "tier device: against tier mmap" in done.stdout
    assert "tier device: share hidden" not in done.stdout
    order = [done.stdout.index(f"== {name}") for name in ("engines", "training", "loading")]
    assert order == sorted(order)
    # Each row is printed when it is measured, and in the table at the end.
    assert done.stdout.count("training step, fp16: p50") == 2


HIDE_YACS = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "yacs" else found(name, *more)
"""


@NO_GPU
def test_a_missing_requirement_is_named_and_the_other_sections_run(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HIDE_YACS)
    done = on_gpu("training", "embedded", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "training: not measured: pip install yacs" in done.stdout
    assert "TensorRT: not measured: a TensorRT engine needs an NVIDIA GPU" in done.stdout


def test_packages_on_the_callers_pythonpath_reach_the_sections(tmp_path):
    """On a lent machine, a folder there may hold all that is installed."""
    (tmp_path / "carried.py").write_text("")
    program = (
        "import runpy, subprocess, sys\n"
        f"runpy.run_path({str(ON_GPU / '__main__.py')!r}, run_name='imported')\n"
        "subprocess.run([sys.executable, '-c', 'import carried, common'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stderr == ""
