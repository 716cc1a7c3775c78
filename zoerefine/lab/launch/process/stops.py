"""Passing Ctrl-C, SIGTERM and a closed terminal on to the processes that we started."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopForwarding:
    """While entered, a stop signal is handed to `forward` and does not end this process.

    `forward(number, count)` gets the signal's number and how many came so far, this one included:
    by convention the first asks the children to stop with a checkpoint, the second kills them.
    A signal that this process was started to ignore (nohup) stays ignored.

    Attributes:
        count: how many stop signals came.
        number: of the first one; 0 before that.
        failure: why the job has failed elsewhere; empty where it has not.
    """

    def __init__(self, forward: Callable[[int, int], None]) -> None:
        self.count = self.number = 0
        self.failure = ""
        self.forward = forward
        self._failures = 0
        self._waiting: list[int] | None = None

    def __enter__(self) -> "StopForwarding":
        self._previous = {
            number: signal.signal(number, self._receive)
            for number in STOP_SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While entered, signals wait, so that they reach what is being started."""
        self._waiting = []
        try:
            yield
        finally:
            waiting, self._waiting = self._waiting, None
            for number in waiting:
                self._receive(number, None)

    def stop(self) -> None:
        """Do what Ctrl-C would; from any thread."""
        self._receive(signal.SIGINT, None)

    def fail(self, reason: str) -> None:
        """Do what Ctrl-C would, for a job that has failed elsewhere; from any thread."""
        self.failure = reason
        self._failures += 1
        self.forward(signal.SIGINT, self.count + self._failures)

    def _receive(self, number: int, _: object) -> None:
        if self._waiting is not None:
            self._waiting.append(number)
            return
        self.count += 1
        self.number = self.number or number
        self.forward(number, self.count + self._failures)
