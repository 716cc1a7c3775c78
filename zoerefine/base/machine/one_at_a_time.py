"""Work that computes as in a new process; threads of one process do it one at a time."""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock

import torch

from zoerefine.base.machine.device import without_autocast, without_strict_mode
from zoerefine.base.messages import say

_TURN = RLock()  # the settings are of the whole process


@contextmanager
def as_in_a_new_process() -> Iterator[None]:
    """Compute as a new process would; afterwards the caller's settings of torch are as before.

    They are autocast, gradients, the default type and device, the precision of products in float32,
    determinism, which libraries compute (oneDNN, cuDNN), and the states of the random generators.
    Nearly all are of the whole process, so threads take turns. The number of threads stays: a run
    records it.
    """
    if not _TURN.acquire(blocking=False):
        say(
            "waiting for the training, search, export or analysis of another thread of this process"
        )
        _TURN.acquire()
    dtype, kind = torch.get_default_dtype(), torch.get_default_device()
    precision = torch.get_float32_matmul_precision()
    state = random.getstate()
    try:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_float32_matmul_precision("highest")
        gpu = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        own_types, tensors = without_autocast(), torch.inference_mode(False)
        onednn = torch.backends.mkldnn.flags(enabled=True, allow_tf32=None)  # True would warn
        with (_on_the_cpu(), torch.random.fork_rng(gpu), own_types, tensors, torch.enable_grad(),
              onednn, torch.backends.cudnn.flags(enabled=True), without_strict_mode()):  # fmt: skip
            yield
    finally:
        torch.set_default_dtype(dtype)
        if kind != torch.get_default_device():
            torch.set_default_device(kind)
        torch.set_float32_matmul_precision(precision)
        random.setstate(state)
        _TURN.release()


def _on_the_cpu() -> AbstractContextManager[object]:
    """The default device of a new process, also in a caller's `with torch.device(...)`."""
    of_caller = torch.get_default_device()
    return nullcontext() if of_caller == torch.device("cpu") else torch.device("cpu")
