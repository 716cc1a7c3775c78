"""Batches from a packed cache: threads gather whole batches into buffers that are used again.

A batch is one `np.take` of rows into an existing buffer: no Python code for each sample and no
allocation. NumPy releases the GIL meanwhile, so threads scale, without the copies that worker
processes would add.
"""

import copy
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.machine.memory import aligned_empty
from zoerefine.base.threads import NoTimeline, Timeline, thread_row
from zoerefine.depth.data.cache.cache import WORD_BYTES, Cache, Field
from zoerefine.depth.data.loading.sampler import Order, Sampler

MAX_THREADS = 4  # memory bandwidth limits more of them


@dataclass(frozen=True)
class Batch:
    """The records of one batch, on any device.

    A loader's batch is valid until the next one is taken: see `Loader`.

    Attributes:
        rows: the records, int64 [B, stride / 8].
        index: their numbers in the cache, int64 [B], on the CPU.
    """

    rows: Tensor
    index: Tensor
    fields: tuple[Field, ...]

    @property
    def rgb(self) -> Tensor:
        """uint8 [B, 3, H, W], channels last in memory."""
        return self._view("rgb").permute(0, 3, 1, 2)

    @property
    def zoe(self) -> Tensor:
        """uint16 [B, 1, H, W]."""
        return self._view("zoe")[:, None]

    @property
    def depth(self) -> Tensor:
        """uint16 [B, 1, H, W]."""
        return self._view("depth")[:, None]

    @property
    def objects(self) -> Tensor:
        """uint8 [B, 1, H, W]."""
        return self._view("objects")[:, None]

    @property
    def points(self) -> Tensor | None:
        """Metric points, float32 [B, MAX_POINTS, 4], where the data have some."""
        has_points = any(field.name == "points" for field in self.fields)
        return self._view("points") if has_points else None

    def _view(self, name: str) -> Tensor:
        field = next(field for field in self.fields if field.name == name)
        part = self.rows.view(torch.uint8)[:, field.offset : field.offset + field.nbytes]
        return part.view(getattr(torch, field.dtype)).unflatten(1, field.shape)


class Loader:
    """Yields the batches of one epoch, and of the next epoch when it is iterated again.

    A batch is valid only until the next one is taken: two buffers are used in turn, so that
    `list(loader)` holds the last two batches again and again.

    Args:
        cache: the packed cache.
        sampler: which records make up the batches.
        threads: how many gather at once, each a part of a batch; 0: one a core, at most 4.
        rank, world: of `world` processes this one gets every world-th record of each batch,
            starting at its `rank`-th.
        pinned: keep the buffers in pinned memory, from which a GPU copies while the CPU does
            other work.
        timeline: where the gathers are recorded.
    """

    def __init__(
        self,
        cache: Cache,
        sampler: Sampler,
        threads: int = 0,
        rank: int = 0,
        world: int = 1,
        pinned: bool = False,
        timeline: Timeline | None = None,
    ) -> None:
        self.cache, self.sampler = cache, sampler
        self.threads = threads or min(MAX_THREADS, usable_cores())
        self.rank, self.world = rank, world
        self.timeline = timeline or NoTimeline()
        self._pinned = pinned
        self._buffers: list[np.ndarray] = []
        self._epoch = self._batch = 0

    def __len__(self) -> int:
        """Number of batches in the current epoch."""
        return self.sampler.batches(self._epoch)

    def at_epoch(self, epoch: int) -> "Loader":
        """This loader at the beginning of an epoch, with buffers of its own."""
        other = copy.copy(self)
        other._buffers = []
        other._epoch, other._batch = epoch, 0
        return other

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches have been taken."""
        return {"epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from the position of a `state_dict`."""
        self._epoch, self._batch = state["epoch"], state["batch"]

    def indices(self) -> Iterator[np.ndarray]:
        """The record numbers of each remaining batch of the epoch, int64 [b]; loads nothing."""
        order = self.sampler.order(self._epoch)
        while self._batch < len(order.ends):
            index = self._index(order, self._batch)
            self._batch += 1
            yield index
        self._epoch, self._batch = self._epoch + 1, 0

    def __iter__(self) -> Iterator[Batch]:
        order = self.sampler.order(self._epoch)
        free = deque(self._allocated_buffers())
        left = deque(range(self._batch, len(order.ends)))
        pending: deque[tuple[np.ndarray, np.ndarray, list[Future[None]]]] = deque()
        with ThreadPoolExecutor(self.threads, "reader") as pool:
            for number in list(left)[:2]:
                pool.submit(self.cache.records.read_ahead, self._index(order, number))
            while left or pending:
                while left and free:
                    number, buffer = left.popleft(), free.popleft()
                    index = self._index(order, number)
                    parts = self._start(pool, number, index, buffer)
                    pending.append((buffer, index, parts))
                    if len(left) > 1:
                        pool.submit(self.cache.records.read_ahead, self._index(order, left[1]))
                buffer, index, parts = pending.popleft()
                for part in parts:
                    part.result()
                self._batch += 1
                rows = torch.from_numpy(buffer[: len(index)])
                yield Batch(rows, torch.from_numpy(index), self.cache.fields)
                free.append(buffer)
        self._epoch, self._batch = self._epoch + 1, 0

    def _index(self, order: Order, number: int) -> np.ndarray:
        """The numbers of this rank's records in a batch, int64 [b]."""
        return order.batch(number)[self.rank :: self.world]

    def _allocated_buffers(self) -> list[np.ndarray]:
        """One to gather into and one that the consumer holds: more only cause cache misses."""
        shape = -(-self.sampler.batch // self.world), self.cache.stride // WORD_BYTES
        while len(self._buffers) < 2:
            if self._pinned:
                self._buffers.append(torch.empty(shape, dtype=torch.int64, pin_memory=True).numpy())
            else:
                self._buffers.append(aligned_empty(shape, np.int64))
        return self._buffers

    def _start(
        self, pool: ThreadPoolExecutor, number: int, index: np.ndarray, buffer: np.ndarray
    ) -> list[Future[None]]:
        """Gather a batch, each thread a part of it: the first batch is ready soonest that way."""
        ends = [len(index) * k // self.threads for k in range(self.threads + 1)]
        return [
            pool.submit(self._gather, number, index[start:end], buffer[start:end])
            for start, end in pairwise(ends)
            if start < end
        ]

    def _gather(self, number: int, index: np.ndarray, out: np.ndarray) -> None:
        with self.timeline.span(thread_row("reader"), number):
            self.cache.records.gather(index, out)
