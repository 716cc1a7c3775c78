"""log.txt: the metrics that a metric pattern finds in a job's output."""

import time
from dataclasses import dataclass
from itertools import islice

from zoerefine.run_metrics.line_reader import LineLog
from zoerefine.run_metrics.metric_pattern import MetricPattern
from zoerefine.run_metrics.series import Kind

LINES, LIMIT_S = 1000, 5.0  # a pattern may take exponential time


@dataclass(kw_only=True)
class OutputLog(LineLog):
    """A job's output. A value without a step has the count of the metric's values as its step."""

    pattern: MetricPattern

    @property
    def kind(self) -> Kind:
        return Kind.OUTPUT

    def update(self, ended: bool) -> None:
        """Search the new lines, until the pattern takes too long once."""
        lines = self.reader.new_lines(ended)
        while not self.faults and (some := list(islice(lines, LINES))):
            try:
                self._search(some, time.monotonic() + LIMIT_S)
            except TimeoutError:
                self.faults["pattern"] = (
                    f"the metric pattern takes more than {LIMIT_S:g} s for {LINES} lines: use a "
                    "simpler one"
                )

    def _search(self, lines: list[str], deadline: float) -> None:
        """Raises `TimeoutError` at the deadline, a time of `time.monotonic`."""
        for line in lines:
            for name, step, value in self.pattern.find(line, deadline - time.monotonic()):
                counted = len(self.points.get(name, ())) + 1
                self.add(name, counted if step is None else step, value)
