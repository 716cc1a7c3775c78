"""Items that a thread makes ahead of whoever takes them."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Channel(Generic[T]):
    """Iterates what a thread puts; its error is raised here, and leaving early ends it.

    Args:
        produce: run in the thread with this channel; puts items until `put` says that nobody
            wants any more.
        room: how many items may wait to be taken.

    Attributes:
        closed: set once nobody wants any more.
    """

    def __init__(self, produce: "Callable[[Channel[T]], None]", room: int) -> None:
        self._produce = produce
        self._ready: queue.Queue[T | BaseException | None] = queue.Queue(room)
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
        """Wait for room; False where nobody wants any more."""
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
