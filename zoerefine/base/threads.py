"""Threads that work ahead of the code that consumes their results, a timeline of what they do, and
waiting for Ctrl-C.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def wait_for_ctrl_c() -> None:
    """Returns never: `KeyboardInterrupt` ends it, within a second.

    A wait without a limit can miss the signal: one that comes after Python has looked for signals
    and before the wait begins, or in another thread, wakes nobody.
    """
    while True:
        time.sleep(1)


class BackgroundIterator(Generic[T]):
    """Iterates what a thread produces. The thread's error is raised here, after the items before
    it. Leaving the iteration early ends the thread.

    Args:
        produce: runs in the thread, with this iterator; puts items until `put` returns False.
        capacity: how many items may wait to be consumed.

    Attributes:
        closed: set once the consumer has left.
    """

    def __init__(self, produce: "Callable[[BackgroundIterator[T]], None]", capacity: int) -> None:
        self._produce = produce
        self._ready: queue.Queue[T | BaseException | None] = queue.Queue(capacity)
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[T]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            while (item := self._ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.closed.set()
            thread.join()

    def put(self, item: T | BaseException | None) -> bool:
        """Wait until the item can be queued; False once the consumer has left."""
        while not self.closed.is_set():
            with suppress(queue.Full):
                self._ready.put(item, timeout=0.1)
                return True
        return False

    def _run(self) -> None:
        try:
            self._produce(self)
            self.put(None)
        except BaseException as error:
            self.put(error)


def produced_ahead(items: Iterable[T], count: int) -> Iterator[T]:
    """The items of an iterable, of which a thread makes `count` ready before they are needed."""

    def produce(ready: BackgroundIterator[T]) -> None:
        for item in items:
            if not ready.put(item):
                break

    return iter(BackgroundIterator(produce, count))


def submitted_ahead(
    items: Iterable[S], submit: Callable[[S], Future[T]], count: int
) -> Iterator[T]:
    """The results of what was submitted for each item, in order, `count` of them ahead."""
    waiting: deque[Future[T]] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) > count:
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()


@contextmanager
def repeating(action: Callable[[], None], every_s: float) -> Iterator[None]:
    """While entered, call `action` from a thread, the first time after `every_s` seconds."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


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
