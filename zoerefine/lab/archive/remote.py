"""A folder behind a URL: a disk, or an object store that fsspec knows.

Credentials come from the environment or the store's own files, such as ~/.aws. URLs that hold a
password are refused, and every error of a store's library becomes one line without secrets.
Several files move at a time, and are counted and digested on their way.
"""

import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from zoerefine.base.errors import UserError, install, needed
from zoerefine.base.files.atomic import sync_file_system
from zoerefine.base.messages import one_line
from zoerefine.base.progress import Progress, bar
from zoerefine.base.secrets import hide_secrets, holds_password

EXTRA = "archive"
BLOCK_BYTES = 8 * 2**20
# Stores without folders. In s3fs, making a folder may make a bucket.
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "tos"}
S3 = {"s3", "s3a"}


class NotThereError(UserError):
    """There is nothing at an address."""


class Remote:
    """A folder, perhaps on another machine.

    Attributes:
        url: its address, as it may be printed.
    """

    def __init__(self, url: str) -> None:
        """Raises `UserError` for an address that cannot be used, and without a store's package."""
        check_url(url)
        self.url = hide_secrets(url.rstrip("/")) or "/"
        self._system, self._root = open_file_system(url)

    def inside(self, name: str) -> "Remote":
        """The folder of this name in this one."""
        inner = object.__new__(Remote)
        inner.url, inner._root = f"{self.url}/{name}", f"{self._root}/{name}"
        inner._system = self._system
        return inner

    def is_at(self, path: str) -> bool:
        """Whether this folder's address ends with these folders, perhaps encoded, as in HTTP."""
        addresses = (self._root, unquote(self._root))
        return any(f"/{address}".endswith(f"/{path}") for address in addresses)

    def sizes(self) -> dict[str, int]:
        """The bytes of every file directly in this folder, by name; none where there is none."""
        try:
            return {name: one["size"] for name, one in self._entries() if one["type"] == "file"}
        except NotThereError:
            return {}

    def folders(self) -> list[str]:
        """The names of the folders directly in this folder.

        Raises `NotThereError` where it does not exist.
        """
        return sorted(name for name, one in self._entries() if one["type"] == "directory")

    def read(self, name: str, limit_bytes: int) -> bytes:
        """A small file; of a larger one, the first bytes up to one more than the limit.

        Raises:
            NotThereError: it does not exist.
            UserError: it cannot be read.
        """
        with self._reported(name), self._open(name, "rb") as file:
            data: bytes = file.read(limit_bytes + 1)
        return data

    def blocks(self, name: str) -> Iterator[bytes]:
        """A file's content in pieces. Raises like `read`."""
        with self._reported(name), self._open(name, "rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a file. A kill may leave a part of it on a disk; an object store has it or not.

        On a disk, several processes may write the same bytes at once: none cuts the file first.
        Raises `UserError` where it cannot be written.
        """
        with self._reported(name):
            if not self._is_object_store():
                self._system.makedirs(self._root, exist_ok=True)
            with self._open_to_write(name) as file:
                for block in blocks:
                    file.write(block)
                if self._is_disk():
                    file.truncate()

    def replace(self, name: str, data: bytes) -> None:
        """Write a file so that readers see the old or the new one. Raises like `write`."""
        if self._is_object_store():  # it does so with every file
            self.write(name, [data])
            return
        temporary = f"{name}.{uuid.uuid4().hex[:8]}.new"  # another process may do the same
        try:
            self.write(temporary, [data])
            with self._reported(name):
                if self._is_disk():
                    sync_file_system(Path(self._root))
                self._system.mv(f"{self._root}/{temporary}", f"{self._root}/{name}")
        except BaseException:
            with suppress(UserError):
                self.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove a file. Raises `UserError` where it cannot be removed."""
        with self._reported(name):
            self._system.rm_file(f"{self._root}/{name}")

    def _entries(self) -> list[tuple[str, dict[str, Any]]]:
        with self._reported(""):
            self._system.invalidate_cache()
            found = self._system.ls(self._root, detail=True)
        return [(one["name"].rstrip("/").rpartition("/")[2], one) for one in found]

    def _open(self, name: str, mode: str) -> Any:
        return self._system.open(f"{self._root}/{name}", mode, block_size=BLOCK_BYTES)

    def _open_to_write(self, name: str) -> Any:
        if self._is_disk():
            return open(f"{self._root}/{name}", "wb", opener=open_without_cutting)
        return self._open(name, "wb")

    def _is_object_store(self) -> bool:
        return bool(OBJECT_STORES.intersection(protocols(self._system)))

    def _is_disk(self) -> bool:
        return "file" in protocols(self._system)

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        """Turn what a store's library raises into a `UserError` with the address."""
        place = f"{self.url}/{name}".rstrip("/")
        try:
            yield
        except UserError:
            raise
        except FileNotFoundError as error:
            raise NotThereError(f"{place}: {reason_of(error)}") from None
        except Exception as error:  # whatever a store's library raises
            raise UserError(f"{place}: {reason_of(error)}") from None


def check_url(url: str) -> None:
    """Raises `UserError` for an address that no archive can have. The message never shows it."""
    if holds_password(url):
        raise UserError(
            "the address holds a password: remove it; credentials come from the environment "
            "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or from the store's own files, such as "
            "~/.aws/credentials"
        )
    if any(char in url for char in "*?[") or "::" in url or not url.isprintable():
        raise UserError("the address of an archive must not hold *, ?, [, :: or control characters")
    if not url or url.startswith("memory:"):
        raise UserError("the address of an archive must be a URL such as s3://bucket/folder")


def open_file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path there.

    Raises `UserError` where it has none, or its package is missing.
    """
    with needed("archives need fsspec", EXTRA):
        from fsspec.core import url_to_fs
    scheme = url.partition("://")[0] if "://" in url else "file"
    try:
        system, root = url_to_fs(url, skip_instance_cache=True)
    except ImportError as error:
        named = f"s3fs: {install(EXTRA)}" if scheme in S3 else f"a package: {reason_of(error)}"
        raise UserError(f"{scheme}:// needs {named}") from None
    except Exception as error:  # whatever a store's library raises
        raise UserError(f"{scheme}:// cannot be opened: {reason_of(error)}") from None
    if not root.strip("/"):
        raise UserError(f"{hide_secrets(url)} names no folder: give one, such as s3://bucket/runs")
    return system, root.rstrip("/")


def open_without_cutting(path: str, flags: int) -> int:
    """Open a file, and leave the bytes that it has until they are overwritten."""
    return os.open(path, flags & ~os.O_TRUNC, 0o666)


def protocols(system: Any) -> tuple[str, ...]:
    """The names of a file system in URLs."""
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


def reason_of(error: Exception) -> str:
    """An error of a store's library in one line, without secrets."""
    return hide_secrets(one_line(str(error) or type(error).__name__))


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
