"""The number format of `TRAIN.PRECISION auto`: bf16 only where it is faster. Determinism."""

import pytest
import torch

from tests.processes import run_new_python
from zoerefine.base.machine.device import compute_dtype, has_amx, has_bf16, make_deterministic

CPU = torch.device("cpu")


@pytest.fixture
def processor(monkeypatch):
    """Pretend to be a processor: processor(avx512_bf16=True, amx=False, limit="AVX2")."""

    def pretend(avx512_bf16, amx, limit=""):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)

    return pretend


def test_a_cpu_trains_in_bf16_only_with_amx(processor):
    processor(avx512_bf16=True, amx=True)
    assert compute_dtype("auto", CPU) == torch.bfloat16
    processor(avx512_bf16=True, amx=False)
    assert compute_dtype("auto", CPU) == torch.float32
    assert compute_dtype("bf16", CPU) == torch.bfloat16  # as asked


@pytest.mark.parametrize(
    ("limit", "amx", "bf16"),
    [
        ("", True, True),
        ("DEFAULT", True, True),
        ("AVX2", False, False),
        ("AVX512_CORE", False, False),
        ("AVX512_CORE_VNNI", False, False),
        ("AVX512_CORE_BF16", False, True),
        ("avx512_core_bf16", False, True),
        ("AVX512_CORE_FP16", False, True),
        ("AVX512_CORE_AMX", True, True),
        ("AVX512_CORE_AMX_FP16", True, True),
        ("AVX10_1_512", False, True),
    ],
)
def test_the_limit_of_onednn_is_respected(processor, limit, amx, bf16):
    processor(avx512_bf16=True, amx=True, limit=limit)
    assert (has_amx(), has_bf16(CPU)) == (amx, bf16)


def test_a_cpu_without_bf16_has_none(processor):
    processor(avx512_bf16=False, amx=False)
    assert not has_bf16(CPU)


def test_determinism_does_not_fill_new_tensors():
    """Each would cost one more pass over its memory; every tensor is written in full anyway."""
    try:
        make_deterministic(0, strict=True)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "module",
    ["zoerefine.depth.exporting.engines.torchscript_engine", "zoerefine.depth.points.spread",
               "zoerefine.depth.infer.evaluate", "zoerefine.depth.training.trainer"],
)  # fmt: skip
def test_vector_functions_are_ready_before_threads_can_call_them(module):
    """Otherwise the first calls of two threads sometimes differ from later ones."""
    code = f"import sys, {module}; sys.exit('zoerefine.base.machine.device' not in sys.modules)"
    run_new_python(code)
