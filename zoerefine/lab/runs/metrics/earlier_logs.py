"""What logs had before a job wrote to them: of its earlier attempts, and of its commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class KnownLogs:
    """What tables and JSON lines had before a job wrote to them: bytes and SHA-256, by their paths
    in the run. It counts as known only where the file still begins with it.

    Attributes:
        before: when the job was started last.
        committed: in the commit.
    """

    before: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    committed: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def bytes_of(self, path: Path, name: str) -> tuple[int, int]:
        """How many bytes of a log are of earlier attempts, and how many are the commit's."""
        known = self.before.get(name), self.committed.get(name)
        return bytes_if_same(path, known[0]), bytes_if_same(path, known[1])


def bytes_if_same(path: Path, known: tuple[int, str] | None) -> int:
    """The number of bytes that are known of a file, if it begins with them."""
    if known is None:
        return 0
    size, digest = known
    with open(path, "rb") as file:
        return size if sha256(file.read(size)).hexdigest() == digest else 0


def attempt_starts(recorded: Mapping[str, Any]) -> Mapping[str, int]:
    """How many bytes each of our own logs had when the job was started last."""
    found = recorded.get("log_bytes_before")
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: size for name, size in pairs if isinstance(size, int)}


def attempts(recorded: Mapping[str, Any]) -> int:
    """How often a job was started; 0 where that is not known."""
    found = recorded.get("attempt")
    return found if isinstance(found, int) else 0


def known_logs(recorded: Mapping[str, Any]) -> KnownLogs:
    """What other logs had before the job's last start, and what the commit has of them."""
    return KnownLogs(*(valid(recorded.get(name)) for name in ("logs_before", "logs_committed")))


def valid(found: Any) -> dict[str, tuple[int, str]]:
    """The rows of a fact that have their form."""
    rows = found.items() if isinstance(found, dict) else ()
    pairs = {name: row for name, row in rows if isinstance(row, list) and len(row) == 2}
    return {n: (row[0], row[1]) for n, row in pairs.items() if [*map(type, row)] == [int, str]}
