"""Triton kernels of `aoti` engines compile for every kind of GPU, without a GPU."""

import json
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.cpp_library import compiled_library
from tests.processes import run_program
from zoerefine.base.registries import NETWORKS

ROOT = Path(__file__).resolve().parents[3]
TRITON = Path(sys.prefix) / "gpu-tests"  # `make test` puts it there
ARCHITECTURES = ("80", "86", "89", "90", "120")  # A100, RTX 30, RTX 40, H100, RTX 50
SOME = (("small", "fp16"),)  # other networks and formats write kernels of the same kinds
ALL = tuple(product(NETWORKS, ("fp16", "bf16", "fp32")))
CALLED = ["extern_kernels.convolution", "torch.ops.aten._adaptive_avg_pool3d.default"]


@pytest.mark.parametrize(
    ("cases", "same", "architectures"),
    [(SOME, "numbers", ("80", "120")), (ALL, "text", ARCHITECTURES)],
    ids=["some", "all"],
)
def test_all_but_convolutions_and_area_means_are_kernels_for_every_gpu(
    request, cases, same, architectures
):
    if not (TRITON / "triton").is_dir():
        pytest.skip(f"Triton is not in {TRITON}: `make test` installs it")
    source = Path(__file__).parents[1] / "training" / "cuda_guard.cpp"
    guard = compiled_library(source, request.config.cache)
    program = "tests.depth.exporting.compile_for_gpus"
    words = [sys.executable, "-W", "ignore", "-m", program, TRITON, guard, same, *architectures]
    done = run_program(words, input=json.dumps(cases), cwd=ROOT)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["failed"] == []
    assert report["targets"] == {f"sm_{one}": report["different"] for one in architectures}
    for network, precision in cases:
        case = f"{network} {precision}"
        assert report["kernels"][case] > 20
        assert report["calls"][case] == CALLED
