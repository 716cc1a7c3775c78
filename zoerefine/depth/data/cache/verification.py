"""Compares the records of a packed cache with the digests that packing stored.

`verify` reads everything at once, with all cores. `BackgroundVerification` does the same while a
training runs, in a thread of low priority that reads at a bounded rate, so that training does not
become slower.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.machine.memory import aligned_empty
from zoerefine.base.messages import first_few
from zoerefine.base.progress import track
from zoerefine.depth.data.cache.cache import (
    TABLE_DIGEST,
    Cache,
    MappedRecords,
    open_cache,
    read_header,
    record_digest,
)

# In the background: about a quarter of one core, less where a training has few cores.
BYTES_PER_S_A_CORE, MOST_BYTES_PER_S = 2**25, 2**27
SHORTEST_PAUSE_S = 0.02
LOWEST_PRIORITY = 19
NAMES_SHOWN = 5

_verified: set[tuple[int, ...]] = set()  # what this process has compared, by the files' identity


class DamagedCache(UserError):
    """The contents of a packed cache differ from their digests."""


def verify(folder: Path) -> int:
    """Compare all of a packed cache with its digests; returns the number of records.

    Raises `DamagedCache` with the names of the frames that differ, and `UserError` where the cache
    cannot be opened.
    """
    cache = open_cache(folder)
    with naming_what_was_removed():
        check_table(cache)
        records = StoredRecords(cache)
    with ThreadPoolExecutor(usable_cores()) as pool:
        found = pool.map(records.is_intact, range(len(cache)))
        intact = list(track(found, len(cache), "verifying", "record"))
    damaged = [index for index, good in enumerate(intact) if not good]
    if damaged:
        raise damage(cache, damaged, len(damaged))
    return len(cache)


@contextmanager
def naming_what_was_removed() -> Iterator[None]:
    """Raises `DamagedCache` for a file that is gone: another command packs the cache again."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedCache(
            f"{error.filename} was removed while it was verified: start this command again"
        ) from None


def packed_caches(folder: Path) -> list[Path]:
    """The packed caches in a folder, which may be one. Raises `UserError` where there are none."""
    if (folder / "cache.json").exists():
        return [folder]
    found = [path.parent for path in sorted(folder.glob("*/cache.json"))]
    finished = [path for path in found if path.suffix != ".partial"]
    if not finished and list(folder.glob("*.partial")):
        raise UserError(
            f"{folder} has a cache that is not packed to its end: wait, or start the command "
            "again that packs it"
        )
    if not finished:
        raise UserError(f"{folder} has no packed cache: make one with zoerefine data pack")
    return finished


class StoredRecords:
    """The records of a packed cache as they are on the disk, not through a mapping."""

    def __init__(self, cache: Cache) -> None:
        assert cache.folder is not None and isinstance(cache.records, MappedRecords)
        self.cache, self.path = cache, cache.folder / "records.bin"
        self._file = cache.records  # the file that is in use, also where another takes its place
        self._per_thread = threading.local()

    def is_intact(self, index: int) -> bool:
        """Whether a record has its digest; any thread may ask."""
        stride = self.cache.stride
        if not hasattr(self._per_thread, "buffer"):
            self._per_thread.buffer = aligned_empty((stride,), np.uint8)
        buffer = self._per_thread.buffer
        try:
            count = os.preadv(self._file.descriptor, [buffer], index * stride)
        except OSError as error:
            raise DamagedCache(f"{self.path} cannot be read: {error.strerror}") from None
        stored = self.cache.frames["digest"][index].tobytes()
        return count == stride and record_digest(buffer) == stored


def check_table(cache: Cache) -> None:
    """Raises `DamagedCache` where frames.npy, which holds the records' digests, has changed."""
    assert cache.folder is not None
    if digest_file(cache.folder / "frames.npy") != read_header(cache.folder)[TABLE_DIGEST]:
        raise DamagedCache(
            f"{cache.folder}/frames.npy differs from its digest in cache.json: delete "
            f"{cache.folder}, or train once with CACHE.MODE rebuild"
        )


def damage(cache: Cache, indices: Iterable[int], count: int) -> DamagedCache:
    """The error that names damaged records."""
    names = [cache.frame_name(index) for index in indices]
    return DamagedCache(
        f"{cache.folder}: {count} of {len(cache)} records differ from the digests of their "
        f"packing: {first_few(names, NAMES_SHOWN)}; delete {cache.folder}, or train once with "
        "CACHE.MODE rebuild"
    )


class BackgroundVerification:
    """Verifies a packed cache while something else runs; a context manager.

    A cache that this process has verified already, or that is not packed completely, takes no time.
    On each machine only the first process of a job verifies, and all of them stop together.
    """

    def __init__(self, cache: Cache, bytes_per_s: float | None = None) -> None:
        rate = min(BYTES_PER_S_A_CORE * usable_cores(), MOST_BYTES_PER_S)
        self.cache, self.bytes_per_s = cache, bytes_per_s or rate
        self._error: Exception | None = None
        self._stopped, self._hurried = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="verification", daemon=True)

    def __enter__(self) -> Self:
        is_packed = bool(self.cache.folder and self.cache.contents)
        self._needed = is_packed and os.environ.get("LOCAL_RANK", "0") == "0"
        if self._needed:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._hurried.set()
        if self._needed:
            self._thread.join()

    @property
    def failed(self) -> bool:
        """Whether this process has found damage, or cannot read the cache."""
        return self._error is not None

    def check(self) -> None:
        """Raises `DamagedCache` if a process of the job has found damage. All processes call it."""
        from zoerefine.base.ranks import gather_from_all  # `data verify` needs no torch

        found = gather_from_all(self._error and (str(self._error) or repr(self._error)))
        faults = [fault for fault in found if fault is not None]
        if faults:
            raise self._error or DamagedCache(faults[0])

    def finish(self) -> None:
        """Verify what is left, as fast as possible, and `check`."""
        self._hurried.set()
        if self._needed:
            self._thread.join()
        self.check()

    def _run(self) -> None:
        with suppress(OSError):  # of this thread alone
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        try:
            with naming_what_was_removed():
                identity = file_identity(self.cache)
                if identity not in _verified:
                    self._verify()
                    if not self._stopped.is_set():
                        _verified.add(identity)
        except Exception as error:
            self._error = error

    def _verify(self) -> None:
        """Stops at the first damaged record, because training must not go on."""
        check_table(self.cache)
        records, start = StoredRecords(self.cache), time.monotonic()
        for index in range(len(self.cache)):
            if self._stopped.is_set():
                return
            if not records.is_intact(index):
                raise damage(self.cache, [index], 1)
            planned_s = (index + 1) * self.cache.stride / self.bytes_per_s
            pause_s = start + planned_s - time.monotonic()
            if pause_s > SHORTEST_PAUSE_S:
                self._hurried.wait(pause_s)


def file_identity(cache: Cache) -> tuple[int, ...]:
    """Numbers that change when the files of a cache are written or replaced."""
    assert cache.folder is not None
    stats = [os.stat(cache.folder / name) for name in ("frames.npy", "records.bin")]
    return tuple(
        value
        for one in stats
        for value in (one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
    )
