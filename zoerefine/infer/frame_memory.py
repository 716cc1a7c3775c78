"""How much memory frames take between reading and writing, and a bound on it."""

import threading
from types import TracebackType

# A waiting frame has 9 bytes a pixel: RGB, pseudo depth, refined depth and spread. While an engine
# refines it on the CPU, it takes about 70. With this number a limit of a quarter of the free memory
# holds in both cases.
BYTES_PER_PIXEL = 30


class FrameMemory:
    """The bytes of the frames in memory; a context manager.

    One thread takes memory, any thread frees it. A frame larger than the limit is let in alone.

    Args:
        limit: of the bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._closed = False
        self._changed = threading.Condition()

    def __enter__(self) -> "FrameMemory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        with self._changed:
            self._closed = True  # after an error nobody frees memory any more
            self._changed.notify_all()

    def has_room(self, nbytes: int) -> bool:
        """Whether `take` would return at once."""
        return self.used + nbytes <= self.limit or not self.used

    def take(self, nbytes: int) -> None:
        """Count a frame that is going to be read; waits if there is no room.

        Then it waits until half of the memory is free, so that the next batches are large.
        """
        with self._changed:
            if not self.has_room(nbytes):
                half = max(0, self.limit // 2 - nbytes)
                self._changed.wait_for(lambda: self.used <= half or self._closed)
            self.used += nbytes

    def free(self, nbytes: int) -> None:
        """Count off a frame that is written, or could not be read."""
        with self._changed:
            self.used -= nbytes
            self._changed.notify_all()
