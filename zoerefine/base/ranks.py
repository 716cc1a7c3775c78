"""One job in many processes, as torchrun starts them: rank, world size, and collectives.

Without torchrun there is one rank, and every function returns at once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_alone = False
COLLECTIVE_TIMEOUT = timedelta(hours=2)  # one rank may pack or evaluate while the others wait


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Number of processes that work together."""
    return dist.get_world_size() if dist.is_initialized() and not _alone else 1


@contextmanager
def each_rank_alone() -> Iterator[None]:
    """While entered, sums and maxima are this rank's own, so that ranks may do different work."""
    global _alone
    _alone = True
    try:
        yield
    finally:
        _alone = False


def is_writer() -> bool:
    """Whether this is the one process that writes the run's files."""
    return rank() == 0


@contextmanager
def process_group() -> Iterator[None]:
    """Join the process group of torchrun; without torchrun, do nothing."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=COLLECTIVE_TIMEOUT)
    else:
        dist.init_process_group("gloo", timeout=COLLECTIVE_TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def wait_for_all() -> None:
    """A barrier: returns when every rank has reached it."""
    if world_size() > 1:
        dist.barrier()


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of every rank's values; gradients flow back to all ranks.

    A loss made of such sums is the same on every rank. Each rank's gradient is `world_size` times
    its share of the full gradient, so DDP's mean over ranks is the full gradient.
    """
    if world_size() == 1:
        return values
    total: Tensor = SumOverRanks.apply(values)
    return total


class SumOverRanks(torch.autograd.Function):
    """A sum over all ranks; its gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        total = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        total: Tensor = SumOverRanks.apply(gradient)
        return total


def max_over_ranks(value: Tensor) -> Tensor:
    """The elementwise maximum over all ranks, without gradients."""
    value = value.detach().clone()
    if world_size() > 1:
        dist.all_reduce(value, dist.ReduceOp.MAX)
    return value


def gather_from_all(value: Any) -> list[Any]:
    """Every rank's value (any that can be pickled), in the order of ranks, on every rank."""
    if world_size() == 1:
        return [value]
    values = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def broadcast_from_writer(value: Any) -> Any:
    """The writer's value (any that can be pickled), on every rank."""
    if world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
