"""The files of a run that hold its results: their digests, and the numbers in them."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoerefine.files import digest_file
from zoerefine.run_dir import RunDir

RESULT_NAMES = ("config.yaml", "best.yaml", "results.json", "weights.sha256", "best.safetensors")
MAX_BYTES = 256 * 2**20
# Written by the launcher, or different each time.
NOT_RESULTS = re.compile(
    r"(^|/)(\.[^/]*|provenance\.json|status\.json|log\.txt|environment\.txt|uncommitted\.patch"
    r"|events\.out\..*|input(\.\w+)?)$"
)
TIMING = re.compile(r"(_s|_ms|_share|_gib)$")


def result_digests(run: RunDir) -> dict[str, str]:
    """SHA-256 of the run's result files by name.

    Where a run has none of `RESULT_NAMES`, every file of the job counts as a result.
    """
    names = sorted(_files(run))
    results = [name for name in names if Path(name).name in RESULT_NAMES]
    return {name: digest_file(run.path / name) for name in results or names}


def _files(run: RunDir) -> Iterator[str]:
    for path in run.path.rglob("*"):
        name = path.relative_to(run.path).as_posix()
        if path.is_symlink() or not path.is_file() or NOT_RESULTS.search(name):
            continue
        if path.stat().st_size <= MAX_BYTES:
            yield name


def result_numbers(run: RunDir) -> dict[str, float]:
    """Every number in the run's results.json files by its place, without those that are times."""
    found: dict[str, float] = {}
    for path in sorted(run.path.rglob("results.json")):
        where = path.relative_to(run.path).parent.as_posix()
        prefix = "" if where == "." else f"{where}: "
        with suppress(ValueError):  # another repository's results.json may not be JSON
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


def weight_digests(run: RunDir) -> dict[str, str]:
    """The digests of trained weights by their place in the run."""
    return {
        path.relative_to(run.path).as_posix(): path.read_text().strip()
        for path in sorted(run.path.rglob("weights.sha256"))
    }
