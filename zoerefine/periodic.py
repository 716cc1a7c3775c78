"""Something that is done again and again while something else runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
