"""The results of a run: its files and numbers, and which of them are times."""

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
TIMING = re.compile(r"(_s|_ms|_share|_gib)$")
# What other scripts call times and speeds, as one of the words in a name.
TIME_WORDS = {"time", "times", "wall", "elapsed", "duration", "eta", "seconds", "secs", "sec", "ms",
              "date", "timestamp", "fps", "sps", "dt", "speed", "throughput"}  # fmt: skip
PER_TIME = re.compile(r"per_(second|minute|hour)")
TIME_BEGIN = re.compile(r"time(?!steps?$)")  # of a word; not of centimeter
TIME_END = re.compile(r"\w(time|fps)$")  # of the last word; not of runtime_error
STATISTICS = {"mean", "avg", "average", "median", "total", "sum", "min", "max", "std"}
PLACE = re.compile(r"\[\d+\]")  # in a list
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # stepTime


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
    for path in _named("results.json", run):
        where = path.relative_to(run.path).parent.as_posix()
        prefix = "" if where == "." else f"{where}: "
        with suppress(ValueError):  # another repository's results.json may not be JSON
            results = json.loads(path.read_text(encoding="utf-8"))
            for name, value in numbers_in(results if isinstance(results, dict) else {}):
                if not any(map(TIMING.search, PLACE.sub("", name).split("."))):
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


def is_time(name: str) -> bool:
    """Whether the name of another script's metric says that it is a time or a speed."""
    spaced = CAMEL.sub("_", PLACE.sub("", name)).lower()
    words = re.split(r"[^a-z0-9]+", spaced)
    is_rate = TIMING.search(spaced) or spaced.endswith("/s") or PER_TIME.search("_".join(words))
    last = next((word for word in reversed(words) if word not in STATISTICS), "")
    return "ssim" not in words and bool(  # ms_ssim is of several scales
        is_rate
        or TIME_WORDS.intersection(words)
        or TIME_END.search(last)
        or any(map(TIME_BEGIN.match, words))
    )


def is_aside(name: str) -> bool:
    """Whether a metric says nothing of how good a result is: a time, a speed, a learning rate."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return is_time(name) or "lr" in words or "learning_rate" in name.lower()


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
