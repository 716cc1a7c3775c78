"""Ctrl-C and SIGTERM ask a run to stop at its next step; a second one stops it there and then."""

import signal
import threading
from types import FrameType, TracebackType

from zoerefine.progress import say


class StopSignals:
    """While entered, `asked` becomes True at the first signal (in the main thread only)."""

    def __init__(self) -> None:
        self.asked = False
        self._old: dict[int, object] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        say("stopping after this step, with a checkpoint; once more to stop at once")
