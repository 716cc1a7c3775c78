"""Collect runs from folders, studies and globs; a damaged run is named and stops no other."""

import glob
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoerefine.analysis.read_run import read_run
from zoerefine.analysis.run_cache import RunCache
from zoerefine.analysis.run_record import Curve, Run
from zoerefine.errors import UserError
from zoerefine.progress import track
from zoerefine.run_dir import RunDir
from zoerefine.run_metrics.find_files import files_with_stats
from zoerefine.visible_text import one_line

RUN_FILES = ("provenance.json", "config.yaml")  # a run has one of them
REPETITION = re.compile(r"-again\d+$")  # what `zoerefine reproduce` adds to a run's name
FILTERED = "does not match --where"  # why a run was left out


@dataclass(frozen=True)
class Collection:
    """Runs, and the paths that were left out with the reason."""

    runs: list[Run]
    left_out: dict[str, str] = field(default_factory=dict)


def collect(
    patterns: list[str],
    keeps: Callable[[Mapping[str, Any]], bool] | None = None,
    cache: RunCache | None = None,
    metrics: Sequence[str] = (),
) -> Collection:
    """Read runs, the trials and best runs of studies, and whatever globs match.

    Args:
        patterns: run directories, studies, or globs of them.
        keeps: selects runs by their settings (see `run_filter.parse_filter`).
        cache: holds runs that were read before; the others are added to it.
        metrics: the names of metrics whose curves are read; AbsRel is always read of our own runs.

    Raises:
        UserError: nothing matches, or no run can be read.
    """
    folders = list(dict.fromkeys(f for pattern in patterns for f in find_runs(pattern)))
    runs, left_out = [], {}
    for folder in track(folders, len(folders), "collecting", "run"):
        try:
            fields = _read_fields(folder, cache, metrics)
            run = _as_run(fields, RunDir(folder).status().state)  # a kill changes no file
            if keeps is None or keeps(run.settings | filter_fields(run)):
                runs.append(run)
            else:
                left_out[_printable(folder)] = FILTERED
        except Exception as error:  # whatever is in its files, the other runs are read
            left_out[_printable(folder)] = damage(error)
    runs, repeated = without_repetitions(runs)
    left_out |= repeated
    if not runs:
        reasons = (
            "; ".join(list(left_out.values())[:3])
            or "no folder there has a provenance.json, as every run has"
        )
        raise UserError(f"nothing to analyse in {', '.join(patterns)}: {reasons}")
    return Collection(runs, left_out)


def damage(error: Exception) -> str:
    """Why a run cannot be read, as a line."""
    named = isinstance(error, UserError | OSError)
    return one_line(str(error) if named else f"it is damaged ({type(error).__name__}: {error})")


def without_repetitions(runs: list[Run]) -> tuple[list[Run], dict[str, str]]:
    """The runs without those that `zoerefine reproduce` made, which are no further seeds.

    A repetition stays where the run that it repeats is not there.
    """
    paths = {run.path for run in runs}
    firsts = {run.path: REPETITION.sub("", run.path) for run in runs}
    left_out = {
        path: f"repeats {Path(first).name}, and is no further seed"
        for path, first in firsts.items()
        if first != path and first in paths
    }
    return [run for run in runs if run.path not in left_out], left_out


def filter_fields(run: Run) -> dict[str, Any]:
    """The names that a filter can use besides a run's settings."""
    return {"state": run.state, "seed": run.seed, "commit": run.commit}


def find_runs(pattern: str) -> list[Path]:
    """Run directories behind a path or glob; for a study, its trials and its best run.

    Links that lead nowhere and folders without permission are returned too, so that they are
    listed.
    """
    found = []
    for match in sorted(glob.glob(pattern)) or [pattern]:
        path = Path(os.path.realpath(match))
        best = path / "best"
        inner = _runs_in(path / "trials") + ([best] if _is_run(best) else [])
        if inner:
            found += inner
        elif _is_run(path) or _is_unreadable(path):
            found.append(path)
        else:
            for folder in _runs_in(path) or _folders_of_runs(path):
                found += find_runs(glob.escape(str(folder)))
    return [Path(os.path.realpath(path)) for path in found]


def _runs_in(folder: Path) -> list[Path]:
    """The run directories directly in a folder, and its unreadable entries."""
    if _is_unreadable(folder):
        return [folder]
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if _is_run(path) or _is_unreadable(path)]


def _folders_of_runs(path: Path) -> list[Path]:
    """The folders in a folder such as `runs`, each with the runs of one name."""
    folders = sorted(path.iterdir()) if path.is_dir() else []
    return [one for one in folders if one.is_dir() and not one.is_symlink() and _runs_in(one)]


def _is_run(path: Path) -> bool:
    return any(os.path.lexists(path / name) for name in RUN_FILES)


def _is_unreadable(path: Path) -> bool:
    return os.path.lexists(path) and not os.access(path, os.R_OK)


def _read_fields(folder: Path, cache: RunCache | None, metrics: Sequence[str]) -> dict[str, Any]:
    """The fields of a run: the cache's where no file has changed since."""
    stamps = file_stamps(folder)
    if cache and (known := cache.get(folder, stamps)):
        return known
    run = read_run(folder, metrics)
    curves = {name: vars(curve) for name, curve in run.curves.items()}
    fields = vars(run) | {"curve": vars(run.curve) if run.curve else None, "curves": curves}
    json.dumps(fields, ensure_ascii=False).encode()  # ValueError if a UTF-8 file cannot hold it
    if cache:
        cache.put(folder, stamps, fields)
    return fields


def _as_run(fields: dict[str, Any], state: str) -> Run:
    """A run from the cache, with its state of now."""
    curve = Curve(**fields["curve"]) if fields["curve"] else None
    curves = {name: Curve(**found) for name, found in fields["curves"].items()}
    return Run(**(fields | {"curve": curve, "curves": curves, "state": state}))


def file_stamps(folder: Path) -> list[list[Any]]:
    """Name, size and time of the files that a run is read from."""
    run = RunDir(folder)
    if not (run.config_file.exists() and run.metrics_file.exists()):
        # Another repository's script may log to any file.
        found = files_with_stats(str(folder))
        return [[path, status.st_size, status.st_mtime_ns] for path, status in found]
    files = [run.config_file, run.results_file, run.metrics_file, run.provenance_file, run.bundle]
    return [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files if f.exists()]


def _printable(folder: Path) -> str:
    """A path as UTF-8 text; bytes that are none are written as escapes."""
    return os.fsencode(folder).decode("utf-8", "backslashreplace")
