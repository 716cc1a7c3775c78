"""What a run came to: the files that say it, their digests, and the numbers in them."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoerefine.files import digest_file
from zoerefine.run_dir import RunDir

TELLING = ("config.yaml", "best.yaml", "results.json", "weights.sha256", "best.safetensors")
LARGEST = 256 * 2**20
# Written by launching itself, or different each time.
NOT_OF_THE_JOB = re.compile(
    r"(^|/)(\.[^/]*|provenance\.json|status\.json|log\.txt|environment\.txt|uncommitted\.patch"
    r"|events\.out\..*|input(\.\w+)?)$"
)
TIMING = re.compile(r"(_s|_ms|_share|_gib)$")


def digests(run: RunDir) -> dict[str, str]:
    """SHA-256 of a run's telling files by name; where it has none of them, of all files."""
    names = sorted(_files(run))
    telling = [name for name in names if Path(name).name in TELLING]
    return {name: digest_file(run.path / name) for name in telling or names}


def _files(run: RunDir) -> Iterator[str]:
    for path in run.path.rglob("*"):
        name = path.relative_to(run.path).as_posix()
        if path.is_symlink() or not path.is_file() or NOT_OF_THE_JOB.search(name):
            continue
        if path.stat().st_size <= LARGEST:
            yield name


def numbers(run: RunDir) -> dict[str, float]:
    """Every number of a run's results by its place, but for those that only tell the time."""
    found: dict[str, float] = {}
    for path in sorted(run.path.rglob("results.json")):
        where = path.relative_to(run.path).parent.as_posix()
        prefix = "" if where == "." else f"{where}: "
        with suppress(ValueError):  # another job's results may be anything
            for name, value in _leaves(json.loads(path.read_text(encoding="utf-8")), ""):
                found[prefix + name] = value
    return found


def _leaves(value: Any, prefix: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if not TIMING.search(key):
                yield from _leaves(item, f"{prefix}{key}.")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield prefix.rstrip("."), float(value)


def weights(run: RunDir) -> dict[str, str]:
    """The digests of trained weights by their place in the run."""
    return {
        path.relative_to(run.path).as_posix(): path.read_text().strip()
        for path in sorted(run.path.rglob("weights.sha256"))
    }
