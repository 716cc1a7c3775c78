"""Transfers of many files by a few threads, with progress in MB, its rate and the time left."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.progress import Progress, bar
from zoerefine.lab.archive.remote import BLOCK_BYTES

THREADS = 4
MB = 1e6


class StoppedError(UserError):
    """Another transfer failed, so this one ends."""


class Meter:
    """Counts the bytes of all threads, and ends them where one of them failed."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._lock = progress, threading.Lock()
        self._bytes, self._shown_mb = 0, 0
        self._stopped = threading.Event()

    def count(self, size_bytes: int) -> None:
        """Count bytes that were moved or read. Raises `StoppedError` after `stop`."""
        if self._stopped.is_set():
            raise StoppedError
        with self._lock:
            self._bytes += size_bytes
            whole_mb = round(self._bytes / MB)  # a bar would print all digits of a fraction
            self._progress.update(whole_mb - self._shown_mb)
            self._shown_mb = whole_mb

    def stop(self) -> None:
        """Let every thread end at its next block."""
        self._stopped.set()

    def counted(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The same blocks, counted."""
        for block in blocks:
            self.count(len(block))
            yield block


@contextmanager
def metered(total_bytes: int, label: str) -> Iterator[Meter]:
    """Show the progress of so many bytes."""
    with bar(max(1, round(total_bytes / MB)), label, "MB") as progress:
        yield Meter(progress)


def in_parallel(jobs: Iterable[Callable[[], None]], meter: Meter) -> None:
    """Run jobs in a few threads. The first exception stops all of them and is raised."""
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            meter.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def file_blocks(path: Path) -> Iterator[bytes]:
    """A local file's content in pieces. Raises `UserError` where it cannot be read."""
    try:
        with open(path, "rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


class Sum:
    """The size and SHA-256 of blocks that pass."""

    def __init__(self) -> None:
        self.bytes = 0
        self._hash = hashlib.sha256()

    def passing(self, blocks: Iterable[bytes], limit_bytes: int) -> Iterator[bytes]:
        """The same blocks; ends after the one that exceeds the limit."""
        for block in blocks:
            self.bytes += len(block)
            self._hash.update(block)
            if self.bytes > limit_bytes:
                return
            yield block

    def agrees(self, size_bytes: int, sha256: str) -> bool:
        """Whether what passed has this size and digest."""
        return self.bytes == size_bytes and self._hash.hexdigest() == sha256


def has_digest(blocks: Iterable[bytes], size_bytes: int, sha256: str) -> bool:
    """Whether a content has this size and digest. Reads little more than the size."""
    found = Sum()
    for _ in found.passing(blocks, size_bytes):
        pass
    return found.agrees(size_bytes, sha256)
