"""Where the records of a cache are kept while they are read: disk, memory, or the device.

mmap    on the disk; the system keeps them in memory as long as there is room
ram     copied into memory of this process first, for files on network storage
device  copied to the device first; a batch is then gathered there, and no batch is copied
"""

import dataclasses
import os
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from zoerefine.base.errors import UserError
from zoerefine.base.machine.device import free_memory_on
from zoerefine.base.machine.memory import aligned_empty, free_memory, workers_on_gpu
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.depth.data.cache.cache import WORD_BYTES, Cache, MappedRecords, Records

# With `auto`, the records of all workers of a GPU may take this share of its free memory. Each
# worker has records of its own, and may see the GPU before the others have copied theirs.
DEVICE_SHARE = 0.5
CHUNK = 256  # records are copied this many at a time


class RamRecords(Records):
    """Records in memory of this process."""

    def __init__(self, cache: Cache) -> None:
        self.rows = aligned_empty((len(cache), cache.stride // WORD_BYTES), np.int64)
        for index in _chunks(cache, "reading into memory"):
            cache.records.gather(index, self.rows[index[0] : index[-1] + 1])

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        np.take(self.rows, index, 0, out=out, mode="clip")


class DeviceRecords(Records):
    """Records in the device's memory: `rows`, int64 [N, stride / 8]."""

    def __init__(self, cache: Cache, device: torch.device) -> None:
        shape = len(cache), cache.stride // WORD_BYTES
        self.rows = torch.empty(shape, dtype=torch.int64, device=device)
        staged = torch.empty((CHUNK, shape[1]), dtype=torch.int64, pin_memory=device.type == "cuda")
        for index in _chunks(cache, "copying to the device"):
            cache.records.gather(index, staged[: len(index)].numpy())
            self.rows[index[0] : index[-1] + 1] = staged[: len(index)]

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        out[:] = self.take(torch.from_numpy(index)).cpu().numpy()

    def take(self, index: Tensor) -> Tensor:
        """The records of `index`, int64 [B] on any device, as int64 [B, stride / 8]."""
        return torch.index_select(self.rows, 0, index.to(self.rows.device, non_blocking=True))


def _chunks(cache: Cache, label: str) -> Iterator[np.ndarray]:
    """The numbers of all records in chunks, with a progress bar."""
    starts = range(0, len(cache), CHUNK)
    for start in track(starts, len(starts), label, "chunk"):
        yield np.arange(start, min(start + CHUNK, len(cache)))


def place_records(cache: Cache, tier: str, device: torch.device) -> Cache:
    """The cache with its records in a tier; `auto` takes the device if they fit, else the disk.

    Prints the tier and the reason. Raises `UserError` where the tier does not fit, or needs frames
    that are not decoded yet.
    """
    mapped = isinstance(cache.records, MappedRecords)
    if tier in ("ram", "device") and not mapped:
        raise UserError(f"LOADER.TIER {tier} needs a packed cache: CACHE.MODE build")
    size = f"{cache.nbytes / 2**30:.2f} GiB of records"
    if not mapped:
        say(f"loader: frames are decoded when they are needed ({size})")
    elif tier == "device" or (tier == "auto" and _fits_on(device, cache)):
        _refuse_too_large(tier, cache, free_memory_on(device))
        say(f"loader: {size} on {device}, which has {free_memory_on(device) / 2**30:.1f} GiB free")
        return dataclasses.replace(cache, records=DeviceRecords(cache, device))
    elif tier == "ram":
        _refuse_too_large(tier, cache, free_memory())
        say(f"loader: {size} copied into memory, because of LOADER.TIER ram")
        return dataclasses.replace(cache, records=RamRecords(cache))
    elif cache.nbytes < free_memory():
        say(f"loader: {size} mapped from {cache.folder}; they fit in memory and stay there")
    else:
        say(
            f"loader: {size} mapped from {cache.folder}; memory has {free_memory() / 2**30:.1f} "
            "GiB for them, so the disk is read in every epoch"
        )
    return cache


def _fits_on(device: torch.device, cache: Cache) -> bool:
    if device.type != "cuda":
        return False
    return cache.nbytes < DEVICE_SHARE * free_memory_on(device) / workers_on_gpu(os.environ)


def _refuse_too_large(tier: str, cache: Cache, free: int) -> None:
    if cache.nbytes > free:
        raise UserError(
            f"LOADER.TIER {tier}: {cache.nbytes / 2**30:.2f} GiB of records, {free / 2**30:.2f} "
            "GiB free: use LOADER.TIER mmap"
        )
