"""Collect runs from folders, studies and globs; a damaged run is named and stops no other."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError, damage
from zoerefine.base.messages import one_line
from zoerefine.base.progress import track
from zoerefine.base.run_dir import BUNDLE_NAMES, ENGINE, RunDir
from zoerefine.lab.runs.find import matches, runs_at
from zoerefine.lab.runs.metrics import RunMetrics, read_metrics
from zoerefine.lab.runs.metrics.find_files import files_with_stats
from zoerefine.lab.runs.read import as_run, read_run
from zoerefine.lab.runs.record import Collection, Curve, Run
from zoerefine.lab.runs.samples import joined_parts, samples
from zoerefine.lab.runs.stored import StoredRuns, as_json, read_many, reading_code
from zoerefine.lab.runs.trackers.stores import TrackerStore, find_stores, local_path

# The files of a run directory that our own training writes and the analysis reads.
CONFIG, METRICS = "config.yaml", "metrics.jsonl"
READ_FILES = (CONFIG, METRICS, "results.json", "provenance.json", "status.json")
FILTERED = "does not match --where"  # why a run was left out


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

    def collection(self, names: Sequence[str]) -> Collection:
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
class TrackerSource(TrackerStore):
    """The store of another tracker, with any number of runs."""

    def collection(self, names: Sequence[str]) -> Collection:
        """Its runs, with the curves of some metrics."""
        stored = self.read(names)
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
        stored = self.read(None).runs
        return {one.path: RunMetrics(one.path, one.series, one.finals, {}) for one in stored}


Source = RunFolder | TrackerSource


def stamp_of(folder: Path, name: str) -> list[Any]:
    """Name, size and time of a file in a folder; empty where there is none."""
    try:
        status = os.stat(f"{folder}/{name}")
    except OSError:
        return []
    return [name, status.st_size, status.st_mtime_ns]


class RunCache(StoredRuns):
    """Runs by where they are read from, valid while the files have the same sizes and times."""

    def __init__(
        self, file: Path, metrics: Sequence[str] = (), patterns: Sequence[str] = ()
    ) -> None:
        """Open the cache.

        Args:
            metrics: those whose curves are kept; entries that were read for others are not used.
            patterns: that find metrics in the output of scripts; the same holds for them.
        """
        key = {"code": reading_code(), "metrics": list(metrics), "patterns": list(patterns)}
        super().__init__(file, key)

    def get(self, source: Source) -> Collection | None:
        """What was read; None where a file has changed since, or cannot be read."""
        name = str(source.path)
        try:
            entry = json.loads(self.old[name])
            if entry["stamps"] != source.stamps():
                return None
            found = found_in(entry)
        except (OSError, ValueError, KeyError):  # reading the source says what is wrong with it
            return None
        self.new[name] = self.old[name]
        return found

    def save(self) -> None:
        """Write what was read; other runs are forgotten. An unchanged file stays as it is."""
        if self.new != self.old or not (self.file and self.file.exists()):
            super().save()


def found_in(entry: dict[str, Any]) -> Collection:
    """What was read, from an entry of the cache."""
    runs = []
    for fields in entry["runs"]:
        curve = Curve(**fields["curve"]) if fields["curve"] else None
        curves = {name: Curve(**found) for name, found in fields["curves"].items()}
        runs.append(Run(**(fields | {"curve": curve, "curves": curves})))
    return Collection(runs, entry["left_out"])


def collect(
    patterns: list[str],
    keeps: Callable[[Mapping[str, Any]], bool] | None = None,
    cache: RunCache | None = None,
    metrics: Sequence[str] = (),
    patterns_of_output: Sequence[str] = (),
) -> Collection:
    """Read runs, the trials and best runs of studies, and whatever globs match.

    Args:
        patterns: run directories, studies, stores of other trackers, or globs of them.
        keeps: selects runs by their settings (see `runs.filter.parse_filter`).
        cache: holds runs that were read before; the others are added to it.
        patterns_of_output: further metric patterns.
        metrics: the names of metrics whose curves are read; AbsRel is always read of our own runs.

    Raises `UserError` where nothing matches, or no run can be read.
    """
    sources = list(
        dict.fromkeys(s for pattern in patterns for s in find_sources(pattern, patterns_of_output))
    )
    runs: list[Run] = []
    left_out: dict[str, str] = {}
    readings = read_sources(sources, cache, metrics)
    for source, found in zip(
        sources, track(readings, len(sources), "collecting", "run"), strict=True
    ):
        if isinstance(found, str):
            path = os.fsencode(source.path).decode("utf-8", "backslashreplace")  # to be printed
            left_out[path] = found
            continue
        runs += found.runs
        left_out |= found.left_out
    runs, parts = joined_parts(runs)
    reasons = {run.path: why_left_out(run, keeps) for run in runs}
    left_out |= {path: reason for path, reason in reasons.items() if reason}
    runs, no_samples = samples([run for run in runs if not reasons[run.path]], metrics)
    left_out |= parts | no_samples
    if not runs:
        reasons_shown = (
            "; ".join(list(dict.fromkeys(left_out.values()))[:3])
            or "no folder there has a provenance.json, as every run has, and none is of a tracker"
        )
        raise UserError(f"nothing to analyse in {', '.join(patterns)}: {reasons_shown}")
    return Collection(runs, left_out)


def read_sources(
    sources: Sequence[Source], cache: RunCache | None, metrics: Sequence[str]
) -> Iterator[Collection | str]:
    """The runs of each source, the cache's where no file has changed; or why it cannot be read."""
    known = [cache.get(source) if cache else None for source in sources]
    new = [source for source, found in zip(sources, known, strict=True) if not found]
    entries = read_many(partial(read_source, metrics=metrics), new)
    for source, found in zip(sources, known, strict=True):
        if not found:
            entry, fault = next(entries)
            if fault:
                yield fault
                continue
            if cache:
                cache.new[str(source.path)] = entry
            found = found_in(json.loads(entry))
        try:
            yield Collection([source.current(run) for run in found.runs], found.left_out)
        except (UserError, OSError) as error:
            yield damage(error)


def read_source(source: Source, metrics: Sequence[str]) -> tuple[str, str]:
    """What is read from a source as an entry of the cache; or why it cannot be read."""
    try:
        as_json(str(source.path))  # ValueError where UTF-8 cannot hold it
        return as_json({"stamps": source.stamps(), **vars(source.collection(metrics))}), ""
    except Exception as error:  # whatever is in its files, the other runs are read
        return "", damage(error)


def why_left_out(run: Run, keeps: Callable[[Mapping[str, Any]], bool] | None) -> str:
    """Why a filter leaves a run out; empty where it keeps it."""
    try:
        fields: dict[str, Any] = {"state": run.state, "seed": run.seed, "commit": run.commit}
        if run.seed is None:  # a config may have a key `seed` of its own
            fields["seed"] = run.settings.get("seed")
        kept = keeps is None or keeps(run.named_settings | fields)
    except UserError as error:  # it has no such setting
        return one_line(str(error))
    return "" if kept else FILTERED


def find_sources(pattern: str, patterns_of_output: Sequence[str] = ()) -> list[Source]:
    """What runs are read from behind a path or glob: run directories, or stores of trackers.

    Raises `UserError` for the address of a server.
    """
    found: list[Source] = []
    for path in matches(local_path(pattern)):
        folders = runs_at(path)
        stores = [] if folders else find_stores(path)
        found += [RunFolder(folder, tuple(patterns_of_output)) for folder in folders]
        found += [TrackerSource(one.tracker, one.path) for one in stores]
    return found


def known_trials(runs: Sequence[Run]) -> dict[str, int]:
    """How many trials the studies of some runs know from earlier ones, which have their runs."""
    trials = (Path(run.path) for run in runs if Path(run.path).parent.name == "trials")
    found: dict[str, int] = {}
    for study in dict.fromkeys(trial.parent.parent for trial in trials):
        with suppress(UserError):  # damaged
            found[str(study)] = RunDir(study).recorded().get("known_trials", 0)
    return {study: count for study, count in found.items() if count}
