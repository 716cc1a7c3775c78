"""File locks that die with their holders, and that a child process can hold on to.

A lock is an open file: it is free once every process that has it open is gone, also after
`kill -9`. Who is handed the descriptor keeps it locked for as long as it lives.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lock(path: Path, shared: bool = False) -> Iterator[int]:
    """Wait for a lock and hold it; yields the descriptor."""
    descriptor = _open(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    assert descriptor is not None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(path: Path) -> Iterator[int | None]:
    """Hold a lock if nobody else does: yields the descriptor, or None where it is taken."""
    descriptor = _open(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(path: Path, how: int) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
            # Whoever cleaned up may have removed the file while we waited for it.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)
