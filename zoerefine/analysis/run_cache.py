"""`collected.json`: the runs that were read, so that the next analysis reads only changed ones."""

import json
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.files import write_text

PACKAGE = Path(__file__).resolve().parents[1]
# What reads a run. An entry that another version of this code made is not used.
READERS = (
    "analysis/*run*.py",
    "analysis/collect.py",
    "analysis/documents.py",
    "run_metrics/*.py",
    "exporting/bundle.py",
    "exporting/containers/*.py",
    "identity.py",
    "run_dir.py",
    "trees.py",
    "yaml_text.py",
)


class RunCache:
    """Runs by folder, each valid while its files have the same names, sizes and times.

    Nothing is written before `save`.
    """

    def __init__(self, path: Path, metrics: Sequence[str] = ()) -> None:
        """Open the cache.

        Args:
            metrics: those whose curves are kept; entries that were read for others are not used.
        """
        self.path = path
        self.key = {"code": reading_code(), "metrics": list(metrics)}
        self.old = self._read()
        self.entries: dict[str, Any] = {}

    def get(self, folder: Path, stamps: list[list[Any]]) -> dict[str, Any] | None:
        """The fields of a run whose files have not changed; None for any other."""
        found = self.old.get(str(folder))
        if not isinstance(found, dict) or found.get("stamps") != stamps:
            return None
        self.entries[str(folder)] = found
        return found["run"]

    def put(self, folder: Path, stamps: list[list[Any]], fields: dict[str, Any]) -> None:
        """Remember what was read."""
        self.entries[str(folder)] = {"stamps": stamps, "run": fields}

    def save(self) -> None:
        """Write what was read; other runs are forgotten."""
        write_text(self.path, json.dumps({**self.key, "runs": self.entries}))

    def _read(self) -> dict[str, Any]:
        """The stored entries; none where the file is missing, damaged or another version's."""
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            known = all(document[name] == value for name, value in self.key.items())
            runs = document["runs"] if known else {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}
        return runs if isinstance(runs, dict) else {}


@cache
def reading_code() -> str:
    """A digest of the modules that read runs."""
    digest = sha256()
    for pattern in READERS:
        for path in sorted(PACKAGE.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()
