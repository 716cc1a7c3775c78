"""Reads the metrics of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.metrics.run_logs import RunLogs
from zoerefine.lab.runs.metrics.series import RunMetrics


def read_metrics(run: RunDir, patterns: Sequence[str] = ()) -> RunMetrics:
    """The metrics of a run, as far as it got.

    They come from metrics.jsonl and results.json in the run; without metrics.jsonl from
    TensorBoard's event files and from CSV files anywhere in the run; and from log.txt by the
    metric patterns that the run was launched with. What is damaged is named in `faults`, and all
    the rest is read.

    Args:
        patterns: further metric patterns.
    """
    fault = ""
    try:
        recorded = read_provenance(run)
    except UserError as error:
        recorded, fault = {}, str(error)
    logs = RunLogs(run, (*recorded_patterns(recorded), *patterns), attempt_starts(recorded))
    logs.update()
    metrics = logs.metrics()
    return replace(metrics, faults=(fault, *metrics.faults)) if fault else metrics


def read_provenance(run: RunDir) -> Mapping[str, Any]:
    """What a launcher recorded; empty without it. Raises `UserError` where it is damaged."""
    if not run.provenance_file.exists():
        return {}
    recorded = run.read_json(run.provenance_file)
    return recorded if isinstance(recorded, dict) else {}


def recorded_patterns(recorded: Mapping[str, Any]) -> tuple[str, ...]:
    """The metric patterns of a job. Earlier versions recorded one, as a text."""
    found = recorded.get("metric_patterns") or recorded.get("metric_pattern") or []
    return tuple(map(str, found)) if isinstance(found, list) else (str(found),)


def attempt_starts(recorded: Mapping[str, Any]) -> Mapping[str, int]:
    """How many bytes each log had when the job was started last."""
    found = recorded.get("log_bytes_before")
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: size for name, size in pairs if isinstance(size, int)}
