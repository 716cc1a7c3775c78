"""Files that only save time: each user's own, written whole, and never an error when missing."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zoerefine.base.files.atomic import replacing


def cache_file(*name: str) -> Path:
    """A file in the user's cache folder, named by what must be equal to use it again."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "zoerefine" / "-".join(name)


def read_cache(path: Path) -> bytes | None:
    """The content of a cache file; None if there is none, or it cannot be read."""
    with suppress(OSError):
        return path.read_bytes()
    return None


def write_cache(path: Path, data: bytes) -> None:
    """Replace a cache file; nothing happens where it cannot be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(data)


@contextmanager
def private_copy(path: Path) -> Iterator[Path]:
    """A copy of a cache file for a program that rewrites it; afterwards it replaces the file.

    The copy's folder exists; the copy does not if there is no file yet.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with suppress(OSError):
            shutil.copyfile(path, copy)
        yield copy
        if data := read_cache(copy):
            write_cache(path, data)
