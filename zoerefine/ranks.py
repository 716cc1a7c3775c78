"""One job in many processes, as torchrun starts them: who am I, and sums over all of us.

Without torchrun there is one rank, and everything here is free.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PATIENCE = timedelta(hours=2)  # for a rank that evaluates or packs while the others wait


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_writer() -> bool:
    """Whether this process writes the run: one does."""
    return rank() == 0


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that torchrun has started; without it, do nothing."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=PATIENCE)
    else:
        dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()


def wait_for_all() -> None:
    """Go on when every rank has come here."""
    if world() > 1:
        dist.barrier()


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of every rank's values; gradients flow back to all ranks.

    A loss made of such sums is the same on every rank, and each rank's gradient is `world` times
    its part of the true one: the mean over ranks, which DDP takes, is the true one.
    """
    if world() == 1:
        return values
    from torch.distributed.nn.functional import all_reduce

    total: Tensor = all_reduce(values)
    return total


def largest_over_ranks(value: Tensor) -> Tensor:
    """The largest of every rank's value, without gradients."""
    value = value.detach().clone()
    if world() > 1:
        dist.all_reduce(value, dist.ReduceOp.MAX)
    return value


def from_all(value: Any) -> list[Any]:
    """Every rank's value of something that can be pickled, in the ranks' order, on every rank."""
    if world() == 1:
        return [value]
    values = [None] * world()
    dist.all_gather_object(values, value)
    return values


def from_writer(value: Any) -> Any:
    """The writer's value of something that can be pickled, on every rank."""
    if world() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
