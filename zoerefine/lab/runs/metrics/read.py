"""Reads the metrics of a run, and follows one of them while its job is running."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.metrics.run_logs import RunLogs, logs_of
from zoerefine.lab.runs.metrics.steps import RunMetrics, same_number


def read_metrics(run: RunDir | Path | str, patterns: Sequence[str] = ()) -> RunMetrics:
    """The metrics of a run, as far as it got.

    They come from metrics.jsonl and results.json in the run; without metrics.jsonl from
    TensorBoard's event files and from CSV files anywhere in the run; and from log.txt by the
    metric patterns that the run was launched with. What is damaged is named in `faults`, and all
    the rest is read.

    Args:
        run: its folder.
        patterns: further metric patterns.

    Raises `UserError` where there is no such folder.
    """
    if not isinstance(run, RunDir):
        if not Path(run).is_dir():
            raise UserError(f"{run} is not a run: there is no such folder")
        run = RunDir(Path(run))
    fault = ""
    try:
        recorded = run.recorded()
    except UserError as error:
        recorded, fault = {}, str(error)
    patterns = (*recorded_patterns(recorded), *patterns)
    logs = logs_of(run, patterns, recorded)
    logs.update()
    metrics = logs.metrics()
    return replace(metrics, faults=(fault, *metrics.faults)) if fault else metrics


def recorded_patterns(recorded: Mapping[str, Any]) -> tuple[str, ...]:
    """The metric patterns of a job."""
    found = recorded.get("metric_patterns")
    return tuple(map(str, found)) if isinstance(found, list) else ()


@dataclass
class MetricFollower:
    """Reads the values of a metric as they are written.

    Attributes:
        run: the run's folder.
        folder: its job's workspace, where a script may still be writing. Only files that were
            written since the job's start are read there.
        name: the metric.
        patterns: find metrics in the job's output.
        committed: of logs that the commit has, bytes and SHA-256, by their paths in the run.
    """

    run: RunDir
    folder: Path
    name: str
    patterns: Sequence[str] = ()
    committed: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    _logs: RunLogs = field(init=False)
    _known: dict[float, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._logs = logs_of(self.run, self.patterns, self.run.recorded())
        self._logs.known = replace(self._logs.known, committed=self.committed)

    def new(self) -> list[tuple[float, float]]:
        """Steps and values since the last call, in the order of the steps; values may be NaN.

        A step whose value was replaced, as after a resume, comes again. Values of a job's first
        epoch come when it is known whether their steps begin again in the second.
        """
        status = self.run.status()
        if status.state == "running":
            self._logs.update(self.folder, status.started)
        else:
            self._logs.update()
        series = self._logs.metrics().series.get(self.name)
        undecided = any(f"/{self.name}".endswith(f"/{name}") for name in self._logs.undecided())
        if series is None or (undecided and status.state == "running"):
            return []
        pairs = zip(series.steps, series.values, strict=True)
        new = [(step, value) for step, value in pairs if not self._is_known(step, value)]
        self._known.update(new)
        return new

    def names(self) -> list[str]:
        """Every metric that the run has so far."""
        return sorted(self._logs.metrics().final)

    def _is_known(self, step: float, value: float) -> bool:
        known = self._known.get(step)
        return known is not None and same_number(known, value)
