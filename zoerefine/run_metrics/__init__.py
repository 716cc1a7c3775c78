"""The metrics of any run, found in what its job wrote: logs, TensorBoard's files, CSV, output."""

from zoerefine.run_metrics.follower import MetricFollower
from zoerefine.run_metrics.metric_pattern import parse_pattern
from zoerefine.run_metrics.read import read_metrics
from zoerefine.run_metrics.series import RunMetrics, Series

__all__ = ["MetricFollower", "RunMetrics", "Series", "parse_pattern", "read_metrics"]
