"""File locks between processes; `writer_lock` is a run's. The system frees a lock when its last
holder is gone.

They are Linux's "open file description" locks (fcntl(2), F_OFD_SETLK): a lock belongs to an open
file, so it also ends with `kill -9`, and a child process that inherits the descriptor keeps the
lock for as long as it lives. Threads exclude each other too, since each opens the file separately.

A lock file lies beside what its holder writes, so that every machine that can write there meets
it. What only reads takes no lock: packed caches, bundles and finished runs never change, and so
they can be used from read-only storage.
"""

import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path

from zoerefine.base.errors import UserError

WAIT_S = 15.0  # for a child to end whose parent, the writer, was killed
POLL_S = 0.05
FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length (0: the whole file), process


@contextmanager
def lock(path: Path, shared: bool = False) -> Iterator[int]:
    """Wait for a lock and hold it; yields the file descriptor.

    Raises `UserError` where the lock file cannot be made, or its file system has no locks.
    """
    descriptor = _open_locked(path, fcntl.F_RDLCK if shared else fcntl.F_WRLCK, wait=True)
    assert descriptor is not None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(path: Path, make_folder: bool = True) -> Iterator[int | None]:
    """Hold a lock if it is free: yields the file descriptor, or None where it is taken.

    Raises:
        UserError: like `lock`.
        FileNotFoundError: without `make_folder`, the lock file's folder does not exist.
    """
    descriptor = _open_locked(path, fcntl.F_WRLCK, wait=False, make_folder=make_folder)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


class Wait(Enum):
    """For whom `writer_lock` waits, at most `WAIT_S`."""

    FOR_NOBODY = auto()
    FOR_CHILD = auto()  # of a writer that was killed
    FOR_WRITER = auto()


@contextmanager
def writer_lock(path: Path, writer: Callable[[], tuple[int, str]], wait: Wait) -> Iterator[int]:
    """Hold the lock of a folder that one process writes; yields the file descriptor.

    Args:
        writer: the number and the host of the process that wrote there last; 0: not known.

    Raises `UserError` where another process holds it, and like `lock`.
    """
    deadline = time.monotonic() + WAIT_S
    while True:
        with try_lock(path) as descriptor:
            if descriptor is not None:
                yield descriptor
                return
        pid, host = writer()
        waits = wait is Wait.FOR_WRITER or (wait is Wait.FOR_CHILD and not is_alive(pid))
        if not waits or time.monotonic() > deadline:
            by = f" ({pid} on {host})" if pid else ""
            raise UserError(f"{path.parent} is being written by another process{by}")
        time.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid > 0


def process_line(pid: int, host: str) -> str:
    """A process, whether it is stopped, and how to end it."""
    where = f"process {pid} on {host or 'another machine'}"
    if host == socket.gethostname() and is_stopped(pid):
        return (
            f"{where}, which is stopped: `kill -CONT {pid}` lets it save its checkpoint and end, "
            f"`kill -9 {pid}` ends it"
        )
    return f"{where}: wait for it to end, or end it with `kill -9 {pid}` there"


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is stopped, as by SIGSTOP or Ctrl-Z."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return bool(fields) and fields[0] in "Tt"


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock. Takes no lock and writes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
    finally:
        os.close(descriptor)
    kind: int = struct.unpack(FLOCK, answer)[0]
    return kind != fcntl.F_UNLCK


def _open_locked(path: Path, kind: int, wait: bool, make_folder: bool = True) -> int | None:
    while True:
        descriptor = _open(path, make_folder)
        try:
            if not _acquire(descriptor, path, kind, wait):
                os.close(descriptor)
                return None
            if is_open_at(descriptor, path):  # no clean-up removed it while we waited
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(path: Path, make_folder: bool) -> int:
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_fifo():
            raise UserError(f"{path} is a pipe, not a lock file: remove it")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not make_folder:
            raise
        raise UserError(f"{path.parent} cannot be written to: {error.strerror}") from None


def _acquire(descriptor: int, path: Path, kind: int, wait: bool) -> bool:
    command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    try:
        fcntl.fcntl(descriptor, command, _request(kind))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EINVAL, errno.EOPNOTSUPP):
            raise
        raise UserError(
            f"the file system of {path.parent} has no file locks: use a folder on another one"
        ) from None
    return True


def is_open_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at its path: nobody has moved or deleted it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _request(kind: int) -> bytes:
    return struct.pack(FLOCK, kind, os.SEEK_SET, 0, 0, 0)
