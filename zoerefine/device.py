"""What the machine computes on: device, number format, determinism."""

import os
import random

import torch

from zoerefine.errors import UserError
from zoerefine.memory import free_memory

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device() -> torch.device:
    """This process's GPU where there is one, by its number (a thread begins at GPU 0); else CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def has_bf16(device: torch.device) -> bool:
    """Whether bfloat16 arithmetic is in hardware there, and so worth using."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def compute_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The number format of `auto` or one of `DTYPES` on a device."""
    if precision == "auto":
        fallback = torch.float16 if device.type == "cuda" else torch.float32
        return torch.bfloat16 if has_bf16(device) else fallback
    if precision not in DTYPES:
        known = ", ".join(DTYPES)
        raise UserError(f"TRAIN.PRECISION must be auto or one of {known}, got {precision!r}")
    return DTYPES[precision]


def make_deterministic(seed: int, strict: bool) -> None:
    """Seed every generator; with `strict`, operations that cannot repeat their bits raise.

    cuBLAS reads its variable when it is first used, so this comes before any work on a GPU.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(strict)
    torch.backends.cudnn.benchmark = not strict


def free_on(device: torch.device) -> int:
    """Bytes that could be had on a device, what torch keeps there unused included."""
    if device.type != "cuda":
        return free_memory()
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + held
