"""`collected.json`: the runs that were read, so that the next analysis reads only changed ones."""

import json
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.base.files.atomic import write_text
from zoerefine.lab.runs.record import Curve, Run
from zoerefine.lab.runs.sources import Found

PACKAGE = Path(__file__).resolve().parents[2]
READERS = (
    "lab/runs/**/*.py",
    "depth/exporting/bundle/*.py",
    "base/identity.py",
    "base/run_dir.py",
    "base/yaml/*.py",
)


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


class RunCache:
    """Runs by where they are read from, valid while the files have the same sizes and times.

    Nothing is written before `save`.
    """

    def __init__(
        self, path: Path, metrics: Sequence[str] = (), patterns: Sequence[str] = ()
    ) -> None:
        """Open the cache.

        Args:
            metrics: those whose curves are kept; entries that were read for others are not used.
            patterns: that find metrics in the output of scripts; the same holds for them.
        """
        self.path = path
        self.key = {"code": reading_code(), "metrics": list(metrics), "patterns": list(patterns)}
        self.old = self._read()
        self.entries: dict[str, str] = {}  # as JSON
        self.known: list[str] = []

    def get(self, path: Path, stamps: list[list[Any]]) -> Found | None:
        """What was read, where its files have not changed since; else None."""
        entry = self.old.get(str(path))
        if not isinstance(entry, dict) or entry.get("stamps") != stamps:
            return None
        self.known.append(str(path))
        return Found([run_from(fields) for fields in entry["runs"]], entry["left_out"])

    def put(self, path: Path, entry: str) -> None:
        """Remember what was read, see `as_entry`."""
        self.entries[str(path)] = entry

    def save(self) -> None:
        """Write what was read; other runs are forgotten. An unchanged file stays as it is."""
        if not self.entries and len(self.known) == len(self.old) and self.path.exists():
            return
        texts = self.entries | {path: as_json(self.old[path]) for path in self.known}
        head = as_json(self.key)[:-1]
        rows = ",".join(f"{as_json(path)}:{text}" for path, text in texts.items())
        write_text(self.path, f'{head},"runs":{{{rows}}}}}')

    def _read(self) -> dict[str, Any]:
        """The stored entries; none where the file is missing, damaged or another version's."""
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            known = all(document[name] == value for name, value in self.key.items())
            runs = document["runs"] if known else {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}
        return runs if isinstance(runs, dict) else {}


def as_entry(stamps: list[list[Any]], found: Found) -> str:
    """What was read as JSON text. Raises `ValueError` where UTF-8 cannot hold a text in it."""
    runs = [fields_of(run) for run in found.runs]
    return as_json({"stamps": stamps, "runs": runs, "left_out": found.left_out})


def as_json(value: Any) -> str:
    """A value as JSON text. Raises `ValueError` where UTF-8 cannot hold it."""
    text = json.dumps(value, ensure_ascii=False)
    text.encode()
    return text


def fields_of(run: Run) -> dict[str, Any]:
    """A run as JSON holds it."""
    curves = {name: vars(curve) for name, curve in run.curves.items()}
    return vars(run) | {"curve": vars(run.curve) if run.curve else None, "curves": curves}


def run_from(fields: dict[str, Any]) -> Run:
    """A run from its fields."""
    curve = Curve(**fields["curve"]) if fields["curve"] else None
    curves = {name: Curve(**found) for name, found in fields["curves"].items()}
    return Run(**(fields | {"curve": curve, "curves": curves}))
