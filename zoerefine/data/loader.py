"""Batches from a packed cache: whole-batch gathers into reusable buffers, by threads.

A batch is one `np.take` of rows into a ready buffer: no per-sample Python, no allocation, and
NumPy releases the GIL, so threads scale where worker processes would only add copies.
"""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.cache import WORD, Cache, Field
from zoerefine.data.sampler import Order, Sampler
from zoerefine.errors import UserError
from zoerefine.timeline import NoTimeline, Timeline, thread_row

MOST_THREADS = 4  # more gather no faster than memory can give


@dataclass(frozen=True)
class Batch:
    """Records of one buffer, on any device; valid until the next batch is asked for.

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

    def _view(self, name: str) -> Tensor:
        field = next(field for field in self.fields if field.name == name)
        part = self.rows.view(torch.uint8)[:, field.offset : field.offset + field.nbytes]
        return part.view(getattr(torch, field.dtype)).unflatten(1, field.shape)


class Loader:
    """Yields the batches of one epoch, then of the next when iterated again.

    Args:
        cache: the packed cache.
        sampler: which records make up the batches.
        threads: how many gather at once, each a batch ahead; 0: one a core, at most 4.
        rank, world: of `world` processes this one gets every world-th record of each batch,
            beginning with its `rank`-th.
        pinned: keep the buffers where a GPU can copy from them while the CPU does other work.
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
        if threads < 0:
            raise UserError(f"LOADER.THREADS must be 0 or more, got {threads}")
        self.cache, self.sampler = cache, sampler
        self.threads = threads or min(MOST_THREADS, os.cpu_count() or 1)
        self.rank, self.world = rank, world
        self.timeline = timeline or NoTimeline()
        self._pinned = pinned
        self._buffers: list[np.ndarray] = []
        self._epoch = self._batch = 0

    def __len__(self) -> int:
        """Batches of the epoch that comes or is under way."""
        return self.sampler.batches(self._epoch)

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches have been handed out."""
        return {"epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a position."""
        self._epoch, self._batch = state["epoch"], state["batch"]

    def indices(self) -> Iterator[np.ndarray]:
        """The records of each batch that is left of the epoch, int64 [b], without loading them."""
        order = self.sampler.order(self._epoch)
        while self._batch < len(order.ends):
            chunk = self._share(order, self._batch)
            self._batch += 1
            yield chunk
        self._epoch, self._batch = self._epoch + 1, 0

    def __iter__(self) -> Iterator[Batch]:
        order = self.sampler.order(self._epoch)
        free = deque(self._ready_buffers())
        left = deque(range(self._batch, len(order.ends)))
        pending: deque[tuple[np.ndarray, np.ndarray, list[Future[None]]]] = deque()
        with ThreadPoolExecutor(self.threads, "reader") as pool:
            for number in list(left)[:2]:
                pool.submit(self.cache.records.expect, self._share(order, number))
            while left or pending:
                while left and free:
                    number, buffer = left.popleft(), free.popleft()
                    chunk = self._share(order, number)
                    parts = self._start(pool, number, chunk, buffer)
                    pending.append((buffer, chunk, parts))
                    if len(left) > 1:
                        pool.submit(self.cache.records.expect, self._share(order, left[1]))
                buffer, chunk, parts = pending.popleft()
                for part in parts:
                    part.result()
                self._batch += 1
                rows = torch.from_numpy(buffer[: len(chunk)])
                yield Batch(rows, torch.from_numpy(chunk), self.cache.fields)
                free.append(buffer)
        self._epoch, self._batch = self._epoch + 1, 0

    def _share(self, order: Order, number: int) -> np.ndarray:
        """This rank's records of a batch, int64 [b]."""
        return order.batch(number)[self.rank :: self.world]

    def _ready_buffers(self) -> list[np.ndarray]:
        """One to gather into, and one that the consumer holds: more would only thin the caches."""
        shape = -(-self.sampler.batch // self.world), self.cache.stride // WORD
        while len(self._buffers) < 2:
            if self._pinned:
                self._buffers.append(torch.empty(shape, dtype=torch.int64, pin_memory=True).numpy())
            else:
                self._buffers.append(np.empty(shape, np.int64))
        return self._buffers

    def _start(
        self, pool: ThreadPoolExecutor, number: int, chunk: np.ndarray, buffer: np.ndarray
    ) -> list[Future[None]]:
        """Gather a batch, each thread a part of it, so that the first batch comes soonest."""
        ends = [len(chunk) * k // self.threads for k in range(self.threads + 1)]
        return [
            pool.submit(self._gather, number, chunk[start:end], buffer[start:end])
            for start, end in pairwise(ends)
            if start < end
        ]

    def _gather(self, number: int, chunk: np.ndarray, out: np.ndarray) -> None:
        with self.timeline.span(thread_row("reader"), number):
            self.cache.records.gather(chunk, out)
