"""Batches on the device before they are needed.

On a GPU a batch goes through a slot of device memory that is made once:

    reader thread   pinned buffer  <- records
    copying thread  slot           <- pinned buffer, on a side stream, once the slot is consumed
    main stream     float fields   <- slot, once it is copied; then the slot is consumed

Two events a slot order the streams, so nothing is overwritten early and no memory changes hands
between streams behind the allocator's back.

On a CPU batches become floats where they are used: a thread that did it ahead would take the cores
from the step that it is to serve, and a step's threads wait for their slowest.
"""

import itertools
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from zoerefine.data.area_mean import area_mean, valid_area_mean
from zoerefine.data.channel import Channel
from zoerefine.data.loader import Batch, Loader
from zoerefine.data.tiers import DeviceRecords

WAIT = "waiting for data"  # a timeline's row
AHEAD = 2  # batches that may wait for the consumer


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

    def split(self, count: int) -> "list[DeviceBatch]":
        """`count` parts of nearly the same size; a part may be empty."""
        fields = (self.rgb01, self.zoe_m, self.depth_m, self.objects, self.index)
        parts = zip(*(field.tensor_split(count) for field in fields), strict=True)
        return [DeviceBatch(*part) for part in parts]


T = TypeVar("T")
Transform = Callable[[DeviceBatch], DeviceBatch]


class Prefetcher:
    """Iterates a loader's batches: on the device, as floats, resized and transformed.

    Args:
        loader: where batches come from; its buffers are pinned if the device is a GPU.
        device: where they go.
        transform: applied last, on the device.
        size: height and width that batches are resized to on the device; None: as packed.

    Attributes:
        wait_s: how long the consumer waited for the batch it has now.
        copy_s: how long that batch took to get to the device: the copy itself on a GPU; on a CPU
            the conversion.
    """

    def __init__(
        self,
        loader: Loader,
        device: torch.device,
        transform: Transform | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        self.loader, self.device, self.transform, self.size = loader, device, transform, size
        self.wait_s = self.copy_s = 0.0

    def __iter__(self) -> Iterator[DeviceBatch]:
        records = self.loader.cache.records
        if isinstance(records, DeviceRecords):
            return self._on_device(records)
        if self.device.type == "cuda":
            return self._through_slots()
        return self._here()

    def _on_device(self, records: DeviceRecords) -> Iterator[DeviceBatch]:
        """Nothing has to come: a batch is gathered where it is used."""
        for number, chunk in enumerate(self.loader.indices()):
            start = time.perf_counter()
            with self.loader.timeline.span("gather", number):
                index = torch.from_numpy(chunk)
                rows = records.take(index)
                batch = self._finish(Batch(rows, index, self.loader.cache.fields))
            self.wait_s, self.copy_s = 0.0, time.perf_counter() - start
            yield batch

    def _here(self) -> Iterator[DeviceBatch]:
        for number, batch in enumerate(self._timed(iter(self.loader))):
            start = time.perf_counter()
            with self.loader.timeline.span("convert", number):
                # Making floats copies, so nothing of the loader's buffer is kept.
                made = self._finish(batch)
            self.copy_s = time.perf_counter() - start
            yield made

    def _timed(self, items: Iterator[T]) -> Iterator[T]:
        """The same items; `wait_s` says how long each was waited for."""
        for number in itertools.count():
            start = time.perf_counter()
            with self.loader.timeline.span(WAIT, number):
                item = next(items, None)
            self.wait_s = time.perf_counter() - start
            if item is None:
                return
            yield item

    def _through_slots(self) -> Iterator[DeviceBatch]:
        slots = [_Slot(self.loader, self.device) for _ in range(AHEAD + 1)]
        free: queue.Queue[_Slot] = queue.Queue()
        for slot in slots:
            free.put(slot)
        stream = torch.cuda.current_stream(self.device)
        copied = Channel[tuple[_Slot, float]](
            lambda channel: self._fill_slots(channel, free), AHEAD
        )
        for slot, copy_s in self._timed(iter(copied)):
            self.copy_s = copy_s
            stream.wait_event(slot.copied)
            batch = self._finish(slot.batch)
            slot.consumed.record(stream)
            free.put(slot)
            yield batch

    def _fill_slots(
        self, channel: "Channel[tuple[_Slot, float]]", free: "queue.Queue[_Slot]"
    ) -> None:
        """In the copying thread: move the loader's batches into slots that are consumed."""
        stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(stream):
            for number, batch in enumerate(self.loader):
                slot = _take(free, channel)
                if slot is None:
                    return
                with self.loader.timeline.span("copy", number):
                    copy_s = slot.fill(batch, stream)
                if not channel.put((slot, copy_s)):
                    return

    def _finish(self, batch: Batch) -> DeviceBatch:
        """A batch of records as float fields, at the size that is wanted, transformed."""
        cache = self.loader.cache
        made = DeviceBatch(
            rgb01=batch.rgb.float().div_(255),
            zoe_m=batch.zoe.float().mul_(cache.zoe_scale),
            depth_m=batch.depth.float().mul_(cache.depth_scale),
            objects=batch.objects.clone(),
            index=batch.index.clone(),
        )
        if self.size and self.size != made.zoe_m.shape[2:]:
            made = resize(made, self.size)
        # A rank's share of an epoch's last batch may be empty.
        return self.transform(made) if self.transform and len(made.index) else made


def resize(batch: DeviceBatch, size: tuple[int, int]) -> DeviceBatch:
    """A batch at another size: area means, of depth over valid pixels; nearest object ids."""
    sides = list(size)
    objects = F.interpolate(batch.objects.float(), sides, mode="nearest-exact").byte()
    zoe_m, depth_m = (valid_area_mean(depth, sides) for depth in (batch.zoe_m, batch.depth_m))
    return DeviceBatch(area_mean(batch.rgb01, sides), zoe_m, depth_m, objects, batch.index)


class _Slot:
    """Device memory for one batch of records, and the events that say whose turn it is."""

    def __init__(self, loader: Loader, device: torch.device) -> None:
        rows = -(-loader.sampler.batch // loader.world)
        words = loader.cache.stride // 8
        self.rows = torch.empty((rows, words), dtype=torch.int64, device=device)
        self.begun = torch.cuda.Event(enable_timing=True)
        self.copied = torch.cuda.Event(enable_timing=True)
        self.consumed = torch.cuda.Event()
        # The memory may be a tensor's that queued work still reads, and that work is consumed, too.
        self.consumed.record(torch.cuda.current_stream(device))

    def fill(self, batch: Batch, stream: torch.cuda.Stream) -> float:
        """Copy a batch, and wait until it is here: the loader reuses its buffer after this.

        Returns the seconds that the copy took.
        """
        stream.wait_event(self.consumed)
        self.begun.record(stream)
        count = len(batch.rows)
        self.rows[:count].copy_(batch.rows, non_blocking=True)
        self.copied.record(stream)
        self.copied.synchronize()
        self.batch = Batch(self.rows[:count], batch.index.clone(), batch.fields)
        return self.begun.elapsed_time(self.copied) / 1000


def _take(free: "queue.Queue[_Slot]", channel: Channel[Any]) -> _Slot | None:
    """A slot that is free; None where nobody wants any more."""
    while not channel.closed.is_set():
        with suppress(queue.Empty):
            return free.get(timeout=0.1)
    return None
