"""What the machine computes on: device, number format, free memory, determinism."""

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from zoerefine.base.machine.memory import free_memory
from zoerefine.base.machine.processor import onednn_may_use

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# Makes torch's vector functions (log, exp) ready; so this file is imported wherever several threads
# compute. The MKL inside torch chooses the code for this processor at the first call of a vector
# function. If two threads make their first calls at the same moment, one of them can get a
# low-accuracy function for that call: a relative error of 1.5e-4 in place of 1e-7. It happened in 3
# to 7 of 10,000 processes with torch 2.13, and never in 40,000 processes after one call in a single
# thread. Python imports a file only once and makes other threads wait.
torch.exp(torch.zeros(64))


def pick_device() -> torch.device:
    """The GPU that is current in this thread (GPU 0 in a new thread); without a GPU, the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def has_bf16(device: torch.device) -> bool:
    """Whether the device has bfloat16 arithmetic in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    avx512 = torch.cpu._is_avx512_bf16_supported() and onednn_may_use("BF16", "FP16", "AVX10")
    return bool(avx512) or has_amx()


def has_amx() -> bool:
    """Whether oneDNN can use the CPU's AMX tiles."""
    return bool(torch.cpu._is_amx_tile_supported()) and onednn_may_use()


def compute_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The number format of training: `auto` or one of `DTYPES`.

    `auto` is the format in which a device trains fastest. A GPU takes bf16 where it has it in
    hardware, else fp16. A CPU takes bf16 only with AMX: with AVX-512 alone, bf16 trains 25 to 40%
    slower than fp32.
    """
    if precision == "auto":
        if device.type == "cuda":
            return torch.bfloat16 if has_bf16(device) else torch.float16
        return torch.bfloat16 if has_amx() else torch.float32
    return DTYPES[precision]


def make_deterministic(seed: int, strict: bool) -> None:
    """Seed every generator; with `strict`, nondeterministic operations raise.

    To be called before any work on a GPU: cuBLAS reads its environment variable at first use.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(strict)
    # Otherwise strict mode fills every new tensor, also those that are written in full next.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = not strict


@contextmanager
def without_strict_mode() -> Iterator[None]:
    """Let operations be nondeterministic; afterwards the process's setting is as before.

    In strict mode torch pads and resizes on a GPU in Python, which a trace cannot follow.
    """
    strict, timed = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict)
        torch.backends.cudnn.benchmark = timed


@contextmanager
def without_autocast() -> Iterator[None]:
    """Compute in the types of the tensors, whatever the caller's thread does around it."""
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def free_memory_on(device: torch.device) -> int:
    """Bytes available on a device; on a GPU with torch's own unused cache."""
    if device.type != "cuda":
        return free_memory()
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + cached
