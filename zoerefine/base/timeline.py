"""A timeline of work on batches, collected from any thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Work on one batch: a bar of the drawing. Times are seconds since the timeline began."""

    row: str
    batch: int
    start: float
    end: float


class Timeline:
    """Collects spans from any thread."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._began = time.perf_counter()

    @contextmanager
    def span(self, row: str, batch: int) -> Iterator[None]:
        """Record when the block begins and ends."""
        start = self.now()
        try:
            yield
        finally:
            self.spans.append(Span(row, batch, start, self.now()))

    def now(self) -> float:
        """Seconds since the timeline began."""
        return time.perf_counter() - self._began


class NoTimeline(Timeline):
    """Records nothing."""

    @contextmanager
    def span(self, row: str, batch: int) -> Iterator[None]:
        yield


def thread_row(prefix: str) -> str:
    """The row of the calling thread."""
    return f"{prefix} {threading.current_thread().name.rpartition('_')[2]}"
