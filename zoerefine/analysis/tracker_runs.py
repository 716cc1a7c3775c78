"""Runs that other trackers recorded, as the analysis compares them."""

import json
from collections.abc import Sequence
from typing import Any

from zoerefine.analysis.foreign_run import MOST_METRICS, read_curves
from zoerefine.analysis.run_record import Run
from zoerefine.files import digest_json
from zoerefine.trackers.tracked_run import TrackedRun

# The last part of a key that holds the seed, in lower case.
SEED_NAMES = ("seed", "random_seed", "rng_seed")


def as_run(found: TrackedRun, names: Sequence[str]) -> Run:
    """A run of a tracker, with the curves of some metrics.

    Raises `ValueError` where a text in it cannot be written as UTF-8.
    """
    settings, seed = without_seed(dict(sorted(found.settings.items())))
    json.dumps([settings, found.name, list(found.finals)], ensure_ascii=False).encode()
    return Run(
        path=found.path,
        state=found.state,
        settings=settings,
        group=digest_json(settings)[:8],
        seed=seed,
        curve=None,
        results={},
        provenance={"run_name": found.name, "commit": found.commit},
        engine={},
        is_foreign=True,
        finals=dict(sorted(found.finals.items())[:MOST_METRICS]),
        curves=read_curves(found.series, names),
        faults=found.faults,
    )


def without_seed(settings: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The settings without the seed, and the seed; 0 where no key has its name.

    Where several keys have it, the shortest one counts.
    """
    keys = [key for key, value in settings.items() if is_seed(key) and type(value) is int]
    if not keys:
        return settings, 0
    chosen = min(keys, key=len)
    return {key: value for key, value in settings.items() if key != chosen}, settings[chosen]


def is_seed(key: str) -> bool:
    """Whether a key's last part is a name of the seed."""
    return key.replace("/", ".").rpartition(".")[2].lower() in SEED_NAMES
