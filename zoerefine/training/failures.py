"""Why a training must stop: non-finite steps, and torch's errors as one sentence."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from zoerefine.errors import UserError

GRAD_NORM = "gradient norm"
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
NOT_DETERMINISTIC = re.compile(r"(\S+) does not have a deterministic implementation")


class WatchedStep:
    """A step's loss and gradient norm, copied to the CPU, and the indices of its samples.

    The copy is queued right after the step, and the GPU does not wait for it. `values` waits for
    this copy alone, not for work that was queued later.
    """

    def __init__(self, step: int, loss: Tensor, grad_norm: Tensor, index: Tensor) -> None:
        self.step, self.index = step, index
        both = torch.stack([loss.detach(), grad_norm.detach()])
        self._values = both.to("cpu", non_blocking=True)
        # A blocking event: its `synchronize` sleeps, where others would occupy a CPU core.
        self._copied = torch.cuda.Event(blocking=True) if both.is_cuda else None
        if self._copied:
            self._copied.record()

    @property
    def values(self) -> dict[str, float]:
        """Loss and gradient norm by name."""
        if self._copied:
            self._copied.synchronize()
        loss, grad_norm = self._values.tolist()
        return {"loss": loss, GRAD_NORM: grad_norm}


@contextmanager
def explained_failures() -> Iterator[None]:
    """Turns torch's out-of-memory and nondeterminism errors into a `UserError`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if found := NOT_DETERMINISTIC.search(str(error)):
            raise UserError(
                f"{found[1]} is not deterministic on this device: use another operation, or give "
                "up bit-exact reproducibility with TRAIN.DETERMINISTIC false"
            ) from error
        if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)):
            raise UserError(
                "out of memory: lower LOADER.BATCH, or raise TRAIN.ACCUMULATE, which splits a batch"
            ) from error
        raise
