"""The results of a run: its files, and its numbers."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file
from zoerefine.base.run_dir import NODE_FOLDER, RunDir

RESULT_NAMES = ("config.yaml", "best.yaml", "results.json", "weights.sha256", "best.safetensors")
MAX_BYTES = 256 * 2**20
# Written by the launcher, or different each time.
NOT_RESULTS = re.compile(
    rf"^slurm/|^{NODE_FOLDER.pattern}/|(^|/)\.|(^|/)(provenance\.json|status\.json|log\.txt|environment\.txt|uncommitted\.patch"
    r"|events\.out\..*|input(\.\w+)?|left\.json|included\.json"
    r"|inputs\.json)$"
)


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
    """Every number in the run's results.json files by its place."""
    found: dict[str, float] = {}
    for path in _named("results.json", run):
        where = path.relative_to(run.path).parent.as_posix()
        prefix = "" if where == "." else f"{where}: "
        with suppress(ValueError):  # another repository's results.json may not be JSON
            results = json.loads(path.read_text(encoding="utf-8"))
            for name, value in numbers_in(results if isinstance(results, dict) else {}):
                found[prefix + name] = value
    return found


def numbers_in(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a JSON value and their names; those of a list are `name[0]`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from numbers_in(inner, f"{name}[{place}]")


def weight_digests(run: RunDir) -> dict[str, str]:
    """The digests of trained weights by their place in the run. Raises as `weights_digests`."""
    return {
        path.relative_to(run.path).as_posix(): RunDir(path.parent).weights_digest()
        for path in _named("weights.sha256", run)
    }


def _named(name: str, run: RunDir) -> list[Path]:
    """The files of a name anywhere in a run, without those of other nodes."""
    found = sorted(run.path.rglob(name))
    inside = len(run.path.parts)
    return [path for path in found if not NODE_FOLDER.fullmatch(path.parts[inside])]


def left_digests(run: RunDir) -> dict[str, str]:
    """SHA-256 of the files that the job left in its workspace, by their paths there."""
    path = run.left_file
    if not path.exists():
        return {}
    try:
        return {str(file["path"]): str(file["sha256"]) for file in run.read_json(path)["files"]}
    except (KeyError, TypeError):
        raise UserError(f"{path} is damaged") from None
