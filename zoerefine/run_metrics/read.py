"""Reads the metrics of a run."""

from dataclasses import replace

from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.run_metrics.run_logs import RunLogs
from zoerefine.run_metrics.series import RunMetrics


def read_metrics(run: RunDir) -> RunMetrics:
    """The metrics of a run, as far as it got.

    They come from metrics.jsonl and results.json in the run; without metrics.jsonl from
    TensorBoard's event files and from CSV files anywhere in the run; and from log.txt by the
    metric pattern that the run was launched with. What is damaged is named in `faults`, and all
    the rest is read.
    """
    fault = ""
    try:
        logs = RunLogs(run, recorded_pattern(run))
    except UserError as error:
        logs, fault = RunLogs(run), str(error)
    logs.update()
    metrics = logs.metrics()
    return replace(metrics, faults=(fault, *metrics.faults)) if fault else metrics


def recorded_pattern(run: RunDir) -> str:
    """The metric pattern that the run was launched with; empty without one."""
    if not run.provenance_file.exists():
        return ""
    recorded = run.read_json(run.provenance_file)
    return str(recorded.get("metric_pattern") or "") if isinstance(recorded, dict) else ""
