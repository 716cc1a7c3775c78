"""The metrics of any run, found in what its job wrote: logs, TensorBoard's files, CSV, output."""

from zoerefine.lab.runs.metrics.pattern import parse_pattern
from zoerefine.lab.runs.metrics.read import MetricFollower, read_metrics, recorded_patterns
from zoerefine.lab.runs.metrics.steps import RunMetrics, Series

__all__ = [
    "MetricFollower",
    "RunMetrics",
    "Series",
    "parse_pattern",
    "read_metrics",
    "recorded_patterns",
]

# What other packages import from here; the rest is this package's own.
OPEN = ("attempts", "find_files", "metric_log", "run_logs", "steps")
