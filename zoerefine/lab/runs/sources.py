"""What runs are read from: a run directory, or the store of another tracker."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoerefine.base.errors import damage, one_line
from zoerefine.base.files.atomic import digest_json
from zoerefine.base.run_dir import BUNDLE_NAMES, ENGINE, RunDir
from zoerefine.lab.runs.metrics import RunMetrics, read_metrics
from zoerefine.lab.runs.metrics.find_files import files_with_stats
from zoerefine.lab.runs.read import kept, read_curves, read_run, seed_key, too_many
from zoerefine.lab.runs.record import COMMIT, DIGITS, Collection, Run
from zoerefine.lab.runs.trackers.stores import TrackerStore
from zoerefine.lab.runs.trackers.tracked_run import TrackedRun


def as_run(found: TrackedRun, names: Sequence[str]) -> Run:
    """A run of a tracker, with the curves of some metrics.

    Raises `ValueError` where a text in it cannot be written as UTF-8.
    """
    settings = dict(sorted(found.settings.items()))
    key = seed_key(settings)
    seed = settings.pop(key, None)
    if found.commit:
        settings[COMMIT] = found.commit[:DIGITS]
    json.dumps([settings, found.name, list(found.finals)], ensure_ascii=False).encode()
    return Run(
        path=found.path,
        state=found.state,
        settings=settings,
        group=digest_json(settings)[:8],
        seed=seed,
        curve=None,
        results={},
        provenance={
            "run_name": found.name,
            "commit": found.commit,
            "seed_key": key,
            "tracker_id": found.id or Path(found.path).name,
        },
        engine={},
        is_foreign=True,
        finals=kept(dict(sorted(found.finals.items())), names),
        curves=read_curves(found.series, names),
        faults=[*found.faults, *too_many(found.finals)],
    )


# The files of a run directory that our own training writes and the analysis reads.
CONFIG, METRICS = "config.yaml", "metrics.jsonl"
READ_FILES = (CONFIG, METRICS, "results.json", "provenance.json", "status.json")


@dataclass(frozen=True)
class RunFolder:
    """One run directory; further metric patterns are searched in its output."""

    path: Path
    patterns: tuple[str, ...] = ()

    def stamps(self) -> list[list[Any]]:
        """Name, size and time of the files that the run is read from."""
        stamps = [stamp for name in READ_FILES if (stamp := stamp_of(self.path, name))]
        if not {CONFIG, METRICS} <= {name for name, *_ in stamps}:
            # Another repository's script may log to any file.
            found = files_with_stats(str(self.path))
            return [[path, status.st_size, status.st_mtime_ns] for path, status in found]
        bundles = [f"{ENGINE}/{name}" for name in BUNDLE_NAMES]
        if os.path.exists(f"{self.path}/{ENGINE}"):
            stamps += [stamp for name in bundles if (stamp := stamp_of(self.path, name))]
        return stamps

    def read(self, names: Sequence[str]) -> Collection:
        """The run, with the curves of some metrics."""
        return Collection([read_run(self.path, names, self.patterns)])

    def current(self, run: Run) -> Run:
        """The run with its state of now: a kill changes no file."""
        if run.state != "running":
            return run
        return replace(run, state=RunDir(self.path).status().state)

    def metrics(self) -> dict[str, RunMetrics]:
        """All metrics by the run's path."""
        return {str(self.path): read_metrics(RunDir(self.path), self.patterns)}


@dataclass(frozen=True)
class TrackerSource:
    """The store of another tracker, with any number of runs."""

    store: TrackerStore

    @property
    def path(self) -> Path:
        return self.store.path

    def stamps(self) -> list[list[Any]]:
        """Name, size and time of the store's files."""
        return self.store.stamps()

    def read(self, names: Sequence[str]) -> Collection:
        """Its runs, with the curves of some metrics."""
        stored = self.store.read(names)
        runs, left_out = [], dict(stored.left_out)
        for found in stored.runs:
            try:
                runs.append(as_run(found, names))
            except ValueError as error:
                left_out[one_line(found.path)] = damage(error)
        return Collection(runs, left_out)

    def current(self, run: Run) -> Run:
        """The run: its state is in the store."""
        return run

    def metrics(self) -> dict[str, RunMetrics]:
        """All metrics by the path of the run."""
        stored = self.store.read(None).runs
        return {one.path: RunMetrics(one.path, one.series, one.finals, {}) for one in stored}


Source = RunFolder | TrackerSource


def stamp_of(folder: Path, name: str) -> list[Any]:
    """Name, size and time of a file in a folder; empty where there is none."""
    try:
        status = os.stat(f"{folder}/{name}")
    except OSError:
        return []
    return [name, status.st_size, status.st_mtime_ns]


def printable(path: Path) -> str:
    """A path as UTF-8 text; bytes that are none are written as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
