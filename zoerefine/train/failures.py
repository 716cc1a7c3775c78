"""When a training cannot go on: a step that is no number, and torch's errors in plain words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from zoerefine.errors import UserError

GRAD_NORM = "gradient's norm"
NO_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
NOT_REPEATABLE = re.compile(r"(\S+) does not have a deterministic implementation")


class WatchedStep:
    """A step's loss and gradient norm on their way to the CPU, and the samples that made them.

    A GPU is not stopped for it: whoever asks for the values waits for the copy that was queued
    right after the step, not for what was queued since.
    """

    def __init__(self, step: int, loss: Tensor, grad_norm: Tensor, index: Tensor) -> None:
        self.step, self.index = step, index
        both = torch.stack([loss.detach(), grad_norm.detach()])
        self._values = both.to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if both.is_cuda else None
        if self._copied:
            self._copied.record()

    @property
    def values(self) -> dict[str, float]:
        """By what they are of the step."""
        if self._copied:
            self._copied.synchronize()
        loss, grad_norm = self._values.tolist()
        return {"loss": loss, GRAD_NORM: grad_norm}


@contextmanager
def explained_failures() -> Iterator[None]:
    """Turns torch's errors of a full memory, or of an operation whose bits vary, into one line."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if found := NOT_REPEATABLE.search(str(error)):
            raise UserError(
                f"{found[1]} cannot repeat its bits on this device: choose another operation, or "
                "give up exact repetition with TRAIN.DETERMINISTIC false"
            ) from error
        if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
            raise UserError(
                "out of memory: lower LOADER.BATCH, or raise TRAIN.ACCUMULATE, which splits a batch"
            ) from error
        raise
