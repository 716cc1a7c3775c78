"""log.txt: the metrics that a metric pattern finds in a job's output."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType

from zoerefine.run_metrics.line_reader import LineReader
from zoerefine.run_metrics.metric_pattern import MetricPattern
from zoerefine.run_metrics.series import Kind, MetricLog

LINES, LIMIT_S = 1000, 5.0  # a pattern may take exponential time


class PatternTimeoutError(Exception):
    """A metric pattern took longer than LIMIT_S."""


@dataclass(kw_only=True)
class OutputLog(MetricLog):
    """A job's output. A value without a step has the count of the metric's values as its step."""

    pattern: MetricPattern
    reader: LineReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = LineReader(self.path)

    @property
    def kind(self) -> Kind:
        return Kind.OUTPUT

    def update(self, ended: bool) -> None:
        """Search the new lines, until the pattern takes too long once."""
        lines = self.reader.new_lines(ended)
        while not self.faults and (some := list(islice(lines, LINES))):
            try:
                with time_limit(LIMIT_S):
                    self._search(some)
            except PatternTimeoutError:
                self.faults["pattern"] = (
                    f"the metric pattern takes more than {LIMIT_S:g} s for {LINES} lines: use a "
                    "simpler one"
                )

    def _search(self, lines: list[str]) -> None:
        for line in lines:
            for name, step, value in self.pattern.find(line):
                counted = len(self.points.get(name, ())) + 1
                self.add(name, counted if step is None else step, value)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `PatternTimeoutError` after some seconds.

    Python can be interrupted in a regular expression by a signal alone, and only its main thread:
    in other threads there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise PatternTimeoutError

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
