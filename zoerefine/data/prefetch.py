"""Batches on the device before they are needed: a side stream on a GPU, a thread on a CPU."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zoerefine.data.loader import Batch

AHEAD = 2  # converted batches that may wait for the consumer


@dataclass(frozen=True)
class DeviceBatch:
    """What a training step takes.

    rgb01 float32 [B, 3, H, W] in 0..1, channels last; zoe_m and depth_m float32 [B, 1, H, W],
    metres, 0 = no measurement; objects uint8 [B, 1, H, W]; index int64 [B] on the CPU.
    """

    rgb01: Tensor
    zoe_m: Tensor
    depth_m: Tensor
    objects: Tensor
    index: Tensor


Transform = Callable[[DeviceBatch], DeviceBatch]


class Prefetcher:
    """Iterates a loader's batches, converted, transformed and on the device.

    A thread pulls batches and moves them while the consumer computes. On a GPU the copies run
    from pinned memory on a stream of their own, and an event holds the consumer's stream until
    its batch has arrived.

    Attributes:
        wait_s: how long the consumer waited for the batch it has now.
        copy_s: how long that batch took to convert and to hand to the device, in the thread.
    """

    def __init__(
        self,
        loader: Iterable[Batch],
        device: torch.device,
        depth_scale: float,
        zoe_scale: float,
        transform: Transform | None = None,
    ) -> None:
        self.loader, self.device, self.transform = loader, device, transform
        self.depth_scale, self.zoe_scale = depth_scale, zoe_scale
        self.wait_s = self.copy_s = 0.0

    def __iter__(self) -> Iterator[DeviceBatch]:
        ready: queue.Queue[Any] = queue.Queue(AHEAD)
        ended = threading.Event()
        thread = threading.Thread(target=self._produce, args=(ready, ended), daemon=True)
        thread.start()
        try:
            while True:
                start = time.perf_counter()
                item = ready.get()
                self.wait_s = time.perf_counter() - start
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                batch, arrived, self.copy_s = item
                if arrived is not None:
                    self._hand_over(batch, arrived)
                yield batch
        finally:
            ended.set()
            while thread.is_alive():  # the thread may be waiting for room
                with suppress(queue.Empty):
                    ready.get(timeout=0.01)
            thread.join()

    def _produce(self, ready: "queue.Queue[Any]", ended: threading.Event) -> None:
        stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        try:
            with torch.cuda.stream(stream):
                for batch in self.loader:
                    if ended.is_set():
                        return
                    start = time.perf_counter()
                    moved = self._move(batch)
                    arrived = stream.record_event() if stream else None
                    if arrived is not None:
                        arrived.synchronize()  # the loader reuses the buffer after this
                    ready.put((moved, arrived, time.perf_counter() - start))
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    def _hand_over(self, batch: DeviceBatch, arrived: torch.cuda.Event) -> None:
        """Order the consumer's stream after the copy, and the memory's reuse after the consumer."""
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(arrived)
        for field in (batch.rgb01, batch.zoe_m, batch.depth_m, batch.objects):
            field.record_stream(stream)

    def _move(self, batch: Batch) -> DeviceBatch:
        def to_device(values: Tensor) -> Tensor:
            return values.to(self.device, non_blocking=True)

        # Bytes travel, floats are made on the device. Scaling also copies, so that on a CPU
        # nothing of the loader's buffer is kept.
        moved = DeviceBatch(
            rgb01=to_device(batch.rgb).float().div_(255),
            zoe_m=to_device(batch.zoe).float().mul_(self.zoe_scale),
            depth_m=to_device(batch.depth).float().mul_(self.depth_scale),
            objects=to_device(batch.objects).clone(),
            index=batch.index.clone(),
        )
        return self.transform(moved) if self.transform else moved
