"""What the machine computes on: device, number format, determinism."""

import os
import random
from pathlib import Path

import torch

from zoerefine.errors import UserError


def pick_device() -> torch.device:
    """The GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_bf16(device: torch.device) -> bool:
    """Whether bfloat16 arithmetic is in hardware there, and so worth using."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def compute_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The number format of `auto`, `fp32` or `bf16` on a device."""
    if precision == "auto":
        return torch.bfloat16 if has_bf16(device) else torch.float32
    if precision not in ("fp32", "bf16"):
        raise UserError(f"TRAIN.PRECISION must be auto, fp32 or bf16, got {precision!r}")
    return torch.bfloat16 if precision == "bf16" else torch.float32


def make_deterministic(seed: int, strict: bool) -> None:
    """Seed every generator; with `strict`, operations that cannot repeat their bits raise.

    cuBLAS reads its variable when it is first used, so this comes before any work on a GPU.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(strict)
    torch.backends.cudnn.benchmark = not strict


def free_memory() -> int:
    """Bytes of memory that can be had without swapping (Linux; elsewhere, no limit is known)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 2**62
    values = dict(line.split(":", 1) for line in lines)
    return int(values["MemAvailable"].split()[0]) * 1024
