"""What training steps use: memory, with an estimate of the largest batch that fits, and time."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from zoerefine.base.config.training_keys import ModelKeys
from zoerefine.base.errors import UserError
from zoerefine.base.machine.device import free_memory_on
from zoerefine.base.registries import NETWORKS
from zoerefine.depth.model import build_refiner

GIB = 2**30
MEMORY_SHARE = 0.8  # of the free memory, which a batch may take
COPIES = 5  # of the weights: themselves, gradients, two moments of Adam, the average


def refuse_too_large(model: ModelKeys, device: torch.device) -> None:
    """Raises `UserError`, before memory is taken, where a network's weights cannot fit.

    The size of a network outside this package is not known before it is made.
    """
    if NETWORKS.is_outside(model.NAME):
        return
    with torch.device("meta"):  # shapes without memory
        refiner = build_refiner(model)
    needed = COPIES * sum(p.nbytes for p in refiner.parameters())
    free = free_memory_on(device)
    if needed > free:
        raise UserError(
            f"MODEL.BASE {model.BASE}: out of memory, since the weights of {model.NAME} need "
            f"{needed / GIB:,.0f} GiB in training and {free / GIB:,.1f} GiB are free: lower it"
        )


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch that fits, and in bytes: needed by the asked size, and free."""

    batch: int
    needed: float
    free: int


def largest_batch(
    refiner: nn.Module, sample_bytes: float, parts: int, size: int, device: torch.device
) -> LargestBatch:
    """From the bytes that a sample keeps for its gradients, in batches of `parts` parts."""
    fixed = COPIES * sum({p.untyped_storage().data_ptr(): p.nbytes
                          for p in refiner.parameters()}.values())  # fmt: skip
    free = free_memory_on(device)
    needed = fixed + sample_bytes * math.ceil(size / parts)
    return LargestBatch(parts * int((MEMORY_SHARE * free - fixed) / sample_bytes), needed, free)


def kept_for_gradients(refiner: nn.Module, forward: Callable[[], object]) -> int:
    """Bytes of tensors that a forward pass keeps for the backward pass, without the weights."""
    weights = {p.untyped_storage().data_ptr() for p in refiner.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = forward()  # referenced, so that no address is used twice
    del outputs
    return sum(kept.values())


class StepTimer:
    """Sums times over steps, since the last `take` and since the process began (`totals`).

    A step waits for data, copies them to the device, and computes.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._recent = _StepSums()
        self._total = _StepSums()
        self.restart()

    def restart(self) -> None:
        """Start timing a step now; time since the last step (of an evaluation) is not counted."""
        self._mark = time.perf_counter()

    def step(self, images: int, wait_s: float, copy_s: float) -> None:
        """Add a finished step; `wait_s` and `copy_s` are parts of its time."""
        now = time.perf_counter()
        for sums in (self._recent, self._total):
            sums.steps += 1
            sums.images += images
            sums.wait_s += wait_s
            sums.copy_s += copy_s
            sums.wall_s += now - self._mark
        self._mark = now

    def take(self) -> dict[str, float]:
        """Mean seconds of a step in parts, and images/s, since the last `take`."""
        sums, self._recent = self._recent, _StepSums()
        steps = max(1, sums.steps)
        on_gpu = self._device.type == "cuda"
        # A GPU copies the next batch while it computes; a CPU does one after the other.
        not_computing = sums.wait_s if on_gpu else sums.wait_s + sums.copy_s
        values = {
            "wait_s": sums.wait_s / steps,
            "copy_s": sums.copy_s / steps,
            "compute_s": max(0.0, sums.wall_s - not_computing) / steps,
            **sums.rates(),
        }
        if on_gpu:
            values["gpu_peak_gib"] = torch.cuda.max_memory_allocated(self._device) / 2**30
            with suppress(Exception):  # some GPUs (a MIG slice) do not report it
                values["gpu_use"] = torch.cuda.utilization(self._device) / 100
        return values

    def totals(self) -> dict[str, float]:
        """Rates over all steps of this process."""
        return self._total.rates()


class _StepSums:
    def __init__(self) -> None:
        self.steps = self.images = 0
        self.wait_s = self.copy_s = self.wall_s = 0.0

    def rates(self) -> dict[str, float]:
        wall = self.wall_s or 1.0
        return {"images_per_s": self.images / wall, "wait_share": self.wait_s / wall}
