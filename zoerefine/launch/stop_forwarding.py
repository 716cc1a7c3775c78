"""Passing Ctrl-C, SIGTERM and a closed terminal on to the processes that we started."""

import signal
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopForwarding:
    """While entered, a stop signal is handed to `forward` and does not end this process.

    `forward(number, count)` gets the signal's number and how many came so far, this one included:
    by convention the first asks the children to stop with a checkpoint, the second kills them.
    A signal that this process was started to ignore (nohup) stays ignored.

    Attributes:
        count: how many stop signals came.
        failure: why the job has failed elsewhere; empty where it has not.
    """

    def __init__(self, forward: Callable[[int, int], None]) -> None:
        self.count = 0
        self.failure = ""
        self._forward = forward
        self._failures = 0

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

    def stop(self) -> None:
        """Do what Ctrl-C would; from any thread."""
        self._receive(signal.SIGINT, None)

    def fail(self, reason: str) -> None:
        """Do what Ctrl-C would, for a job that has failed elsewhere; from any thread."""
        self.failure = reason
        self._failures += 1
        self._forward(signal.SIGINT, self.count + self._failures)

    def _receive(self, number: int, _: object) -> None:
        self.count += 1
        self._forward(number, self.count + self._failures)
