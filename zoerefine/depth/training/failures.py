"""Why a training fails: a loss that is not finite, too little memory, no deterministic operation.

A step's loss and gradient are watched without waiting for the GPU.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from zoerefine.base import ranks
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_json
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.training.trainer import Trainer

GRAD_NORM = "gradient norm"
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
NOT_DETERMINISTIC = re.compile(r"(.+?) does not have a deterministic implementation")


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


def check_finite(trainer: Trainer, run: RunDir, watched: WatchedStep | None) -> None:
    """Stop at a step with a non-finite loss or gradient, and write the names of its frames."""
    if watched is None:
        return
    values = watched.values
    what = next((name for name, value in values.items() if not math.isfinite(value)), None)
    if what is None or (what == GRAD_NORM and trainer.can_lower_loss_scale()):
        return
    # Both values are over all ranks, so all ranks reach this together, with their shares.
    shares = ranks.gather_from_all(watched.index.tolist())
    indices = sorted(index for share in shares for index in share)
    names = [trainer.cache.frame_name(index) for index in indices]
    path = run.path / "not_finite.json"
    if ranks.is_writer():
        write_json(path, {"step": watched.step, "frames": names})
    raise UserError(
        f"the {what} of step {watched.step} is {values[what]}: look at the frames named in "
        f"{path}, or lower TRAIN.LR (now {trainer.cfg.TRAIN.LR})"
    )


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
