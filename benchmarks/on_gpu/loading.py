"""From the packed cache to float batches on the GPU: tiers, bus, overlap with computation.

The tiers mmap and ram copy on a side stream, which a computation can hide. The tier device gathers
on the main stream, one kernel after another, so nothing can be hidden: it has to be faster.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from common.report import Row, row
from rows import failure
from world import config, packed

from zoerefine.base.machine.device import pick_device
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.split import Split
from zoerefine.depth.training.trainer import Trainer

EPOCHS = 4
HIDDEN = 0.9  # of the shorter of loading and computing
DEVICE_FASTER = 2.0  # a gather on the device against one on the host and a copy


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """Copies over the bus, then each tier."""
    yield from bus(small)
    cache = packed(folder, small)
    speed: dict[str, float] = {}
    for tier in ("mmap", "ram", "device"):
        try:
            yield from of_tier(cache, tier, small, speed)
        except Exception as error:
            yield failure(f"tier {tier}", error)
    if {"mmap", "device"} <= speed.keys():
        faster = speed["device"] / speed["mmap"]
        yield row("tier device: against tier mmap", faster, "x", None if small else DEVICE_FASTER)


def bus(small: bool) -> Iterator[Row]:
    """Copies to the device from pinned and from ordinary memory."""
    nbytes = 2**22 if small else 2**28
    for name, pinned in (("pinned", True), ("ordinary", False)):
        try:
            source = torch.empty(nbytes, dtype=torch.uint8, pin_memory=pinned)
            target = torch.empty_like(source, device=pick_device())
            seconds = typical(lambda s=source, t=target: t.copy_(s, non_blocking=True))
            yield row(f"{name} memory to the device", nbytes / seconds / 1e9, "GB/s")
        except RuntimeError as error:
            yield failure(f"{name} memory to the device", error)


def of_tier(cache: Cache, tier: str, small: bool, speed: dict[str, float]) -> Iterator[Row]:
    """Images a second, also into `speed`, and the share of the loading time that is hidden."""
    cfg = config(small)
    cfg.defrost()
    cfg.LOADER.TIER = tier
    cfg.freeze()
    trainer = Trainer(cfg, cache, Split(cache.scenes, (), ()))
    images = len(cache) // cfg.LOADER.BATCH * cfg.LOADER.BATCH
    batches = images // cfg.LOADER.BATCH
    alone = typical(lambda: drain(trainer, None))
    speed[tier] = images / alone
    yield row(f"tier {tier}: loading alone", speed[tier], "images/s")
    if tier == "device":
        return
    work = as_long_as(alone / batches)
    computing = typical(lambda: [work() for _ in range(batches)])
    together = typical(lambda: drain(trainer, work))
    hidden = (alone + computing - together) / min(alone, computing)
    yield row(f"tier {tier}: share hidden by an equally long computation", hidden, "", HIDDEN)


def drain(trainer: Trainer, work: Callable[[], object] | None) -> None:
    """Load an epoch of batches, each followed by some work."""
    for _ in trainer.prefetch(trainer.loader):
        if work:
            work()


def as_long_as(seconds: float) -> Callable[[], object]:
    """A computation on the device that takes about `seconds`: a repeated multiplication."""
    matrix = torch.rand(2048 if torch.cuda.is_available() else 128, device=pick_device()).diag()
    once = typical(lambda: matrix @ matrix)
    times = max(1, round(seconds / once))

    def work() -> None:
        for _ in itertools.repeat(None, times):
            torch.mm(matrix, matrix)

    return work


def typical(work: Callable[[], object]) -> float:
    """Median seconds of a few rounds after a warm-up, until the device has finished."""
    seconds = []
    for _ in range(EPOCHS + 1):
        synchronize()
        start = time.perf_counter()
        work()
        synchronize()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[1:]))


def synchronize() -> None:
    """Wait until the device has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
