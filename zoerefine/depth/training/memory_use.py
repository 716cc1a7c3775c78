"""An estimate of the memory of a training step, and of the largest batch that fits."""

import math
from collections.abc import Callable
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
