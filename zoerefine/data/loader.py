"""Batches from a packed cache: whole-batch gathers into reusable buffers, by threads.

A batch is one `np.take` of rows into a ready buffer: no per-sample Python, no allocation, and
NumPy releases the GIL, so threads scale where worker processes would only add copies.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.cache import Cache, Field
from zoerefine.errors import UserError

WORD = 8  # bytes: rows are gathered as int64, which np.take copies fastest


@dataclass(frozen=True)
class Batch:
    """Views of one buffer, valid until the next batch is asked for.

    rgb uint8 [B, 3, H, W] (channels last in memory), zoe and depth uint16 [B, 1, H, W],
    objects uint8 [B, 1, H, W], index int64 [B].
    """

    rgb: Tensor
    zoe: Tensor
    depth: Tensor
    objects: Tensor
    index: Tensor


class Loader:
    """Yields the batches of one epoch, then of the next when iterated again.

    The order is a pure function of (seed, epoch, rank, world). Ranks share an epoch's order and
    take every world-th sample of it.

    Args:
        cache: the packed cache.
        indices: the records to load, int64 [n].
        batch_size: samples a batch; the last batch of an epoch may be smaller.
        seed: of the order.
        shuffle: a new order every epoch, or the order of `indices`.
        threads: how many gather at once, each a batch ahead.
        tier: `mmap` reads records where they lie on the disk; `ram` copies them into memory
            first; `auto` is `mmap`, which the system's page cache makes as fast.
    """

    def __init__(
        self,
        cache: Cache,
        indices: np.ndarray,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        threads: int = 2,
        tier: str = "auto",
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if not len(indices):
            raise UserError(f"no frames to load from {cache.folder}: check the split")
        if batch_size < 1 or threads < 1:
            raise UserError("LOADER.BATCH and LOADER.THREADS must be 1 or more")
        if tier not in ("auto", "mmap", "ram"):
            raise UserError(f"LOADER.TIER must be auto, mmap or ram, got {tier!r}")
        self.cache, self.indices, self.batch_size = cache, indices, batch_size
        self.seed, self.shuffle, self.threads = seed, shuffle, threads
        self.rank, self.world = rank, world
        records = cache.records if tier != "ram" else np.array(cache.records)
        self._rows = records.view(np.int64)  # [N, stride / 8]
        self._epoch = self._batch = 0

    def __len__(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.order(0)) // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """This rank's records in the order of an epoch, int64 [n]."""
        order = self.indices
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        return order[self.rank :: self.world]

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches have been handed out."""
        return {"epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a position."""
        self._epoch, self._batch = state["epoch"], state["batch"]

    def __iter__(self) -> Iterator[Batch]:
        order = self.order(self._epoch)
        chunks = deque(
            order[start : start + self.batch_size]
            for start in range(self._batch * self.batch_size, len(order), self.batch_size)
        )
        # One buffer for each gather under way, and one that the consumer holds.
        shape = (self.batch_size, self._rows.shape[1])
        free = deque(np.empty(shape, np.int64) for _ in range(self.threads + 1))
        pending: deque[tuple[np.ndarray, np.ndarray, Future[None]]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            while chunks or pending:
                while chunks and len(free) > 1:
                    buffer, chunk = free.popleft(), chunks.popleft()
                    pending.append((buffer, chunk, pool.submit(self._gather, chunk, buffer)))
                buffer, chunk, gathered = pending.popleft()
                gathered.result()
                self._batch += 1
                yield as_batch(buffer[: len(chunk)], chunk, self.cache.fields)
                free.append(buffer)
        self._epoch, self._batch = self._epoch + 1, 0

    def _gather(self, chunk: np.ndarray, buffer: np.ndarray) -> None:
        # mode="raise" would gather into a second buffer first; indices are known to be good.
        np.take(self._rows, chunk, 0, out=buffer[: len(chunk)], mode="clip")


def as_batch(rows: np.ndarray, index: np.ndarray, fields: tuple[Field, ...]) -> Batch:
    """The fields of gathered records [B, stride / 8] as tensors, without a copy."""
    flat = torch.from_numpy(rows.view(np.uint8))  # [B, stride]
    views = {}
    for field in fields:
        part = flat[:, field.offset : field.offset + field.nbytes]
        if field.dtype == "uint16":
            part = part.view(torch.uint16)
        views[field.name] = part.unflatten(1, field.shape)
    return Batch(
        rgb=views["rgb"].permute(0, 3, 1, 2),
        zoe=views["zoe"][:, None],
        depth=views["depth"][:, None],
        objects=views["objects"][:, None],
        index=torch.from_numpy(np.ascontiguousarray(index)),
    )
