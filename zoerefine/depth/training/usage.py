"""What training steps use: memory, with an estimate of the largest batch that fits, and time."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress

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


def largest_batch(
    refiner: nn.Module, sample_bytes: float, parts: int, size: int, device: torch.device
) -> tuple[int, float, int]:
    """The largest batch that fits, and in bytes: needed by the asked size, and free.

    Args:
        sample_bytes: that a sample keeps for its gradients, in batches of `parts` parts.
    """
    fixed = COPIES * sum({p.untyped_storage().data_ptr(): p.nbytes
                          for p in refiner.parameters()}.values())  # fmt: skip
    free = free_memory_on(device)
    needed = fixed + sample_bytes * math.ceil(size / parts)
    return parts * int((MEMORY_SHARE * free - fixed) / sample_bytes), needed, free


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
        self._recent, self._total = defaultdict[str, float](float), defaultdict[str, float](float)
        self.restart()

    def restart(self) -> None:
        """Start timing a step now; time since the last step (of an evaluation) is not counted."""
        self._mark = time.perf_counter()

    def step(self, images: int, wait_s: float, copy_s: float) -> None:
        """Add a finished step; `wait_s` and `copy_s` are parts of its time."""
        now = time.perf_counter()
        added = {"wait_s": wait_s, "copy_s": copy_s, "wall_s": now - self._mark}
        for sums in (self._recent, self._total):
            for name, value in ({"steps": 1, "images": images} | added).items():
                sums[name] += value
        self._mark = now

    def take(self) -> dict[str, float]:
        """Mean seconds of a step in parts, and images/s, since the last `take`."""
        sums, self._recent = self._recent, defaultdict(float)
        steps = max(1, sums["steps"])
        on_gpu = self._device.type == "cuda"
        # A GPU copies the next batch while it computes; a CPU does one after the other.
        not_computing = sums["wait_s"] if on_gpu else sums["wait_s"] + sums["copy_s"]
        values = {
            "wait_s": sums["wait_s"] / steps,
            "copy_s": sums["copy_s"] / steps,
            "compute_s": max(0.0, sums["wall_s"] - not_computing) / steps,
            **rates(sums),
        }
        if on_gpu:
            values["gpu_peak_gib"] = torch.cuda.max_memory_allocated(self._device) / 2**30
            with suppress(Exception):  # some GPUs (a MIG slice) do not report it
                values["gpu_use"] = torch.cuda.utilization(self._device) / 100
        return values

    def totals(self) -> dict[str, float]:
        """Rates over all steps of this process."""
        return rates(self._total)


def rates(sums: Mapping[str, float]) -> dict[str, float]:
    """Images a second, and the share of the time that waits for data, from a timer's sums."""
    wall_s = sums["wall_s"] or 1.0
    return {"images_per_s": sums["images"] / wall_s, "wait_share": sums["wait_s"] / wall_s}
