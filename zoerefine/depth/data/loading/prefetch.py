"""Batches on the device before they are needed.

On a GPU a batch goes through a slot of device memory that is allocated once:

    reader thread   pinned buffer  <- records
    copying thread  slot           <- pinned buffer, on a side stream, once the slot is consumed
    main stream     float fields   <- slot, once it is copied; then the slot is consumed

Two events for each slot order the streams: nothing is overwritten early, and the allocator never
has to track memory that several streams use.

On a CPU the consumer's thread converts a batch to floats. A thread that did so ahead would take
cores from the training step, whose threads wait for the slowest of them.
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

from zoerefine.base.threads import BackgroundIterator
from zoerefine.depth.data.area_mean import area_mean, valid_area_mean
from zoerefine.depth.data.cache.cache import WORD_BYTES
from zoerefine.depth.data.loading.loader import Batch, Loader
from zoerefine.depth.data.loading.tiers import DeviceRecords

WAIT = "waiting for data"  # the name of a row in the timeline
AHEAD = 2  # batches that may wait for the consumer


@dataclass(frozen=True)
class DeviceBatch:
    """A batch as a training step uses it. It owns its memory, so it can be kept.

    Attributes:
        rgb01: float32 [B, 3, H, W] in 0..1, channels last in memory.
        zoe_m, depth_m: pseudo and true depth, float32 [B, 1, H, W], metres; 0 marks an invalid
            pixel.
        objects: ids of moving objects, uint8 [B, 1, H, W]; 0 is the background.
        index: the records' numbers in the cache, int64 [B], on the CPU.
        points: metric points of the data, float32 [B, MAX_POINTS, 4]: x, y, metres and sigma; 0
            metres: none.
        hints01: for a refiner that takes metric points, what they say at a pixel, float32
            [B, HINTS, H, W] (zoerefine/depth/points/spread.py); `zoe_m` is then corrected by them.
    """

    rgb01: Tensor
    zoe_m: Tensor
    depth_m: Tensor
    objects: Tensor
    index: Tensor
    points: Tensor | None = None
    hints01: Tensor | None = None

    @property
    def picture01(self) -> Tensor:
        """What a refiner sees beside `zoe_m`: RGB and, if there is one, `hints01`."""
        return self.rgb01 if self.hints01 is None else torch.cat([self.rgb01, self.hints01], 1)

    def split(self, count: int) -> "list[DeviceBatch]":
        """`count` parts of nearly equal size; a part may be empty."""
        fields = {name: field for name, field in vars(self).items() if field is not None}
        parts = {name: field.tensor_split(count) for name, field in fields.items()}
        return [
            DeviceBatch(**{name: part[number] for name, part in parts.items()})
            for number in range(count)
        ]


T = TypeVar("T")
Transform = Callable[[DeviceBatch], DeviceBatch]


class Prefetcher:
    """Iterates a loader's batches on the device: as floats, resized and transformed.

    An iteration is an epoch, the next iteration the next epoch. One that follows an iteration that
    was left early goes on in its epoch, unless `whole_epochs`.

    Args:
        loader: for a GPU, one with pinned buffers.
        device: where the batches are used.
        transform: applied last, on the device.
        size: height and width to resize batches to, on the device; None: as packed.
        whole_epochs: each iteration is a whole epoch, also after one that was left early.

    Attributes:
        wait_s: how long the consumer waited for its current batch.
        copy_s: how long that batch's copy to a GPU took; on a CPU, its conversion to floats.
    """

    def __init__(
        self,
        loader: Loader,
        device: torch.device,
        transform: Transform | None = None,
        size: tuple[int, int] | None = None,
        whole_epochs: bool = False,
    ) -> None:
        self.loader, self.device, self.transform, self.size = loader, device, transform, size
        self._epochs = itertools.count() if whole_epochs else None
        self.wait_s = self.copy_s = 0.0

    def __iter__(self) -> Iterator[DeviceBatch]:
        if self._epochs is not None:
            self.loader = self.loader.at_epoch(next(self._epochs))
        records = self.loader.cache.records
        if isinstance(records, DeviceRecords):
            return self._on_device(self.loader, records)
        if self.device.type == "cuda":
            return self._through_slots(self.loader)
        return self._on_cpu(self.loader)

    def __len__(self) -> int:
        """Number of batches in the current epoch."""
        return len(self.loader)

    def _on_device(self, loader: Loader, records: DeviceRecords) -> Iterator[DeviceBatch]:
        """Batches of records that are on the device already: no batch is copied."""
        for number, numbers in enumerate(loader.indices()):
            start = time.perf_counter()
            with loader.timeline.span("gather", number):
                index = torch.from_numpy(numbers)
                rows = records.take(index)
                batch = self._convert(Batch(rows, index, loader.cache.fields))
            self.wait_s, self.copy_s = 0.0, time.perf_counter() - start
            yield batch

    def _on_cpu(self, loader: Loader) -> Iterator[DeviceBatch]:
        for number, batch in enumerate(self._timed(iter(loader))):
            start = time.perf_counter()
            with loader.timeline.span("convert", number):
                converted = self._convert(batch)
            self.copy_s = time.perf_counter() - start
            yield converted

    def _timed(self, items: Iterator[T]) -> Iterator[T]:
        """The same items, with the wait for each in `wait_s`."""
        for number in itertools.count():
            start = time.perf_counter()
            with self.loader.timeline.span(WAIT, number):
                item = next(items, None)
            self.wait_s = time.perf_counter() - start
            if item is None:
                return
            yield item

    def _through_slots(self, loader: Loader) -> Iterator[DeviceBatch]:
        slots = [_Slot(loader, self.device) for _ in range(AHEAD + 1)]
        free: queue.Queue[_Slot] = queue.Queue()
        for slot in slots:
            free.put(slot)
        stream = torch.cuda.current_stream(self.device)
        copied = BackgroundIterator[tuple[_Slot, float]](
            lambda items: self._fill_slots(loader, items, free), AHEAD
        )
        for slot, copy_s in self._timed(iter(copied)):
            self.copy_s = copy_s
            stream.wait_event(slot.copied)
            batch = self._convert(slot.batch)
            slot.consumed.record(stream)
            free.put(slot)
            yield batch

    def _fill_slots(
        self,
        loader: Loader,
        items: "BackgroundIterator[tuple[_Slot, float]]",
        free: "queue.Queue[_Slot]",
    ) -> None:
        """In the copying thread: copy the loader's batches into slots that were consumed."""
        stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(stream):
            for number, batch in enumerate(loader):
                slot = _take(free, items)
                if slot is None:
                    return
                with loader.timeline.span("copy", number):
                    copy_s = slot.fill(batch, stream)
                if not items.put((slot, copy_s)):
                    return

    def _convert(self, batch: Batch) -> DeviceBatch:
        """A batch of records as float fields with memory of their own, resized and transformed."""
        cache = self.loader.cache
        converted = DeviceBatch(
            rgb01=batch.rgb.float().div_(255),
            zoe_m=batch.zoe.float().mul_(cache.zoe_scale),
            depth_m=batch.depth.float().mul_(cache.depth_scale),
            objects=batch.objects.clone(),
            index=batch.index.clone(),
            points=None if batch.points is None else batch.points.clone(),
        )
        if self.size and self.size != converted.zoe_m.shape[2:]:
            converted = resize(converted, self.size)
        # A rank's part of an epoch's last batch may be empty.
        return self.transform(converted) if self.transform and len(batch.index) else converted


def resize(batch: DeviceBatch, size: tuple[int, int]) -> DeviceBatch:
    """A batch at another size: area means, of depth over valid pixels; nearest object ids."""
    sides = list(size)
    objects = F.interpolate(batch.objects.float(), sides, mode="nearest-exact").byte()
    zoe_m, depth_m = (valid_area_mean(depth, sides) for depth in (batch.zoe_m, batch.depth_m))
    points = batch.points
    if points is not None:
        height, width = batch.zoe_m.shape[2:]
        scale = torch.tensor((size[1] / width, size[0] / height), device=points.device)
        points = torch.cat([(points[..., :2] + 0.5) * scale - 0.5, points[..., 2:]], -1)
    rgb01 = area_mean(batch.rgb01, sides)
    return DeviceBatch(rgb01, zoe_m, depth_m, objects, batch.index, points)


class _Slot:
    """Device memory for one batch of records, and the events that order its two streams."""

    def __init__(self, loader: Loader, device: torch.device) -> None:
        rows = -(-loader.sampler.batch // loader.world)
        words = loader.cache.stride // WORD_BYTES
        self.rows = torch.empty((rows, words), dtype=torch.int64, device=device)
        self.begun = torch.cuda.Event(enable_timing=True)
        # `synchronize` of a blocking event sleeps, where others would occupy a CPU core.
        self.copied = torch.cuda.Event(enable_timing=True, blocking=True)
        self.consumed = torch.cuda.Event()
        # The allocator may give memory that queued work of this stream still reads.
        self.consumed.record(torch.cuda.current_stream(device))

    def fill(self, batch: Batch, stream: torch.cuda.Stream) -> float:
        """Copy a batch and wait for the copy, because the loader then uses its buffer again.

        Returns how long the copy took, in seconds.
        """
        stream.wait_event(self.consumed)
        self.begun.record(stream)
        count = len(batch.rows)
        self.rows[:count].copy_(batch.rows, non_blocking=True)
        self.copied.record(stream)
        self.copied.synchronize()
        self.batch = Batch(self.rows[:count], batch.index.clone(), batch.fields)
        return self.begun.elapsed_time(self.copied) / 1000


def _take(free: "queue.Queue[_Slot]", items: BackgroundIterator[Any]) -> _Slot | None:
    """Wait for a free slot; None once the consumer has left."""
    while not items.closed.is_set():
        with suppress(queue.Empty):
            return free.get(timeout=0.1)
    return None
