"""The first Ctrl-C or SIGTERM stops a run after its step, with a checkpoint; a second Ctrl-C, at
once. A second SIGTERM does not: Slurm sends one to every process, and torchrun passes its own on.
"""

import signal
import threading
from types import FrameType, TracebackType

from zoerefine.progress import say


class StopSignals:
    """A context in which the first signal sets `requested` (in the main thread only)."""

    def __init__(self) -> None:
        self.requested = False
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
        if self.requested:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.requested = True
        say("stopping after this step, with a checkpoint; a second Ctrl-C stops at once")
