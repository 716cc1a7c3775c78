"""What was read from many runs, kept in one file, so that only changed runs are read again.

The list of runs keeps its rows so (`.runs-index`), and an analysis what it compares
(`collected.json`). Runs that must be read are read by a process for each core, since only one
thread of Python parses.
"""

import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from zoerefine.base.files.atomic import replacing
from zoerefine.base.machine.cores import usable_cores

PACKAGE = Path(__file__).resolve().parents[2]
READERS = (
    "lab/runs/**/*.py",
    "depth/exporting/bundle/*.py",
    "base/config_roles.py",
    "base/run_dir.py",
    "base/yaml/*.py",
)
MANY = 500  # runs to read from which on several processes read them
CHUNK = 50  # runs that a process reads at a time

Item = TypeVar("Item")
Reading = TypeVar("Reading")


@cache
def reading_code(*more: str) -> str:
    """A digest of the modules that read runs.

    Args:
        more: globs of further modules in the package.
    """
    digest = sha256()
    for pattern in (*READERS, *more):
        for path in sorted(PACKAGE.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class StoredRuns:
    """JSON texts by the paths of runs, in a file that may be deleted at any time.

    The file is a JSON document with a line for each path. What is damaged, or was stored with
    another key, counts as empty.

    Attributes:
        old: what the file holds.
        new: what it will hold after `save`; other paths are forgotten.
    """

    def __init__(self, file: Path | None, key: Mapping[str, Any]) -> None:
        """Open a file. None: nothing is kept."""
        self.file = file
        self.head = f'{as_json(key)[:-1]},"runs":{{'
        self.old = self._read()
        self.new: dict[str, str] = {}

    def save(self) -> None:
        """Write `new`. Raises `OSError` where the folder cannot be written."""
        if self.file is None:
            return
        with replacing(self.file) as temporary, open(temporary, "wb") as file:
            crc = 0
            for part in self._parts():
                file.write(part)
                crc = crc32(part, crc)
            file.write(end_of(crc))
        self.old = dict(self.new)

    def _parts(self) -> Iterator[bytes]:
        """The file without its end."""
        yield self.head.encode()
        for number, (path, text) in enumerate(self.new.items()):
            yield f"{',' if number else ''}\n{json.dumps(path)}:\t{text}".encode()
        yield b"\n"

    def _read(self) -> dict[str, str]:
        try:
            data = self.file.read_bytes() if self.file else b""
            body = memoryview(data)[: -len(end_of(0))]
            if data[len(body) :] != end_of(crc32(body)):
                return {}
            head, *lines = str(body, "utf-8").split("\n")
        except (OSError, ValueError):
            return {}
        del data, body  # before there are copies of the lines
        if head != self.head:
            return {}
        found = (line.rstrip(",").split(":\t", 1) for line in lines[:-1])
        return {json.loads(path) if "\\" in path else path[1:-1]: text for path, text in found}


def end_of(crc: int) -> bytes:
    """The end of a file, with the checksum of everything before it."""
    return f'}},"crc":"{crc:08x}"}}'.encode()


def as_json(value: Any) -> str:
    """A value as JSON text, of objects their attributes.

    Raises `ValueError` where UTF-8 cannot hold it.
    """
    text = json.dumps(value, ensure_ascii=False, default=vars)
    text.encode()
    return text


def read_many(read: Callable[[Item], Reading], items: Sequence[Item]) -> Iterator[Reading]:
    """What a function reads from each item, in their order. It can be pickled, and never raises."""
    if len(items) < MANY:
        yield from map(read, items)
        return
    # Ctrl-C reaches every process; the one that started these ends them.
    fork, ignored = multiprocessing.get_context("fork"), (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(usable_cores(), fork, signal.signal, ignored) as pool:
        yield from pool.map(read, items, chunksize=CHUNK)
