"""Follows one metric of a run while its job is running."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path

from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.metrics.read import attempt_starts, read_provenance
from zoerefine.lab.runs.metrics.run_logs import RunLogs


@dataclass
class MetricFollower:
    """Reads the values of a metric as they are written.

    Attributes:
        run: the run's folder.
        folder: its job's workspace, where a script may still be writing. Only files that were
            written since the job's start are read there.
        name: the metric.
        patterns: find metrics in the job's output.
    """

    run: RunDir
    folder: Path
    name: str
    patterns: Sequence[str] = ()
    _logs: RunLogs = field(init=False)
    _known: dict[float, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._logs = RunLogs(self.run, self.patterns, attempt_starts(read_provenance(self.run)))

    def new(self) -> list[tuple[float, float]]:
        """Steps and values since the last call, in the order of the steps; values may be NaN.

        A step whose value was replaced, as after a resume, comes again.
        """
        status = self.run.status()
        if status.state == "running":
            self._logs.update(self.folder, status.started)
        else:
            self._logs.update()
        series = self._logs.metrics().series.get(self.name)
        if series is None:
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
        return known is not None and (known == value or (isnan(known) and isnan(value)))
