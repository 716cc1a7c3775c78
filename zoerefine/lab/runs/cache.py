"""`collected.json`: the runs that were read, so that the next analysis reads only changed ones."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoerefine.base.files.atomic import replacing
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

    The file is one JSON document, with a line for each entry. An entry is parsed when it is asked
    for. Nothing is written before `save`.
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
        key = {"code": reading_code(), "metrics": list(metrics), "patterns": list(patterns)}
        self.head = f'{as_json(key)[:-1]},"runs":{{'
        self.old = self._read()  # texts by path, both as JSON
        self.entries: dict[str, str] = {}
        self.is_changed = False

    def get(self, path: Path, stamps: Callable[[], list[list[Any]]]) -> Found | None:
        """What was read, where its files have not changed since; else None."""
        name = as_json(str(path))
        text = self.old.get(name)
        if text is None:
            return None
        try:
            entry = json.loads(text)
            if entry["stamps"] != stamps():
                return None
            found = found_in(entry)
        except (ValueError, KeyError, TypeError, RecursionError):  # damaged
            return None
        self.entries[name] = text
        return found

    def put(self, path: Path, entry: str) -> None:
        """Remember what was read, see `as_entry`."""
        self.entries[as_json(str(path))] = entry
        self.is_changed = True

    def save(self) -> None:
        """Write what was read; other runs are forgotten. An unchanged file stays as it is."""
        if not self.is_changed and len(self.entries) == len(self.old) and self.path.exists():
            return
        with replacing(self.path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(self.head)
            for number, (name, text) in enumerate(self.entries.items()):
                file.write(f"{',' if number else ''}\n{name}:{text}")
            file.write(END)

    def _read(self) -> dict[str, str]:
        """The stored entries; none where the file is cut short or another version's."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return {}
        head, *lines = text.split("\n")
        if head != self.head or not text.endswith(END):
            return {}
        entries = {}
        for line in lines[:-1]:  # without the end
            with suppress(ValueError, RecursionError):  # a damaged line
                _, end = PATH.raw_decode(line)
                entries[line[:end]] = line[end + 1 :].removesuffix(",")
        return entries


END = "\n}}"
PATH = json.JSONDecoder()


def as_entry(stamps: list[list[Any]], found: Found) -> str:
    """What was read as JSON text. Raises `ValueError` where UTF-8 cannot hold a text in it."""
    runs = [fields_of(run) for run in found.runs]
    return as_json({"stamps": stamps, "runs": runs, "left_out": found.left_out})


def found_in(entry: dict[str, Any]) -> Found:
    """What was read, from an entry."""
    return Found([run_from(fields) for fields in entry["runs"]], entry["left_out"])


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
