"""Progress on stderr: bars on a terminal, plain lines elsewhere, nothing if quiet."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self, TypeVar

from zoerefine.base.messages import is_hidden, say
from zoerefine.base.messages import warn as warn  # for images.py: caches store a digest of its code

Item = TypeVar("Item")

FIRST_LINE_S, LONGEST_PAUSE_S = 10.0, 300.0
PAUSE_SHARE = 0.1  # of the time so far, between two plain lines


class Progress(Protocol):
    """What shows progress; tqdm's bar and `PlainLines` have this face."""

    n: float
    initial: float

    def update(self, count: float = 1) -> object:
        """Count items that are done."""

    def set_postfix_str(self, text: str) -> object:
        """Show a text beside the count."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> object: ...


class PlainLines:
    """Progress as whole lines, for a file or a pipe: one at times, and one at the end."""

    def __init__(self, total: int, label: str, unit: str, initial: int) -> None:
        self.total, self.label, self.unit = total, label, unit
        self.n: float = initial
        self.initial: float = initial
        self._text = ""
        self._began = time.monotonic()
        self._due = self._began + FIRST_LINE_S

    def update(self, count: float = 1) -> None:
        self.n += count
        now = time.monotonic()
        if now >= self._due and self.n < self.total:
            pause = min(LONGEST_PAUSE_S, max(FIRST_LINE_S, PAUSE_SHARE * (now - self._began)))
            self._due = now + pause
            say(self.line("left"))

    def set_postfix_str(self, text: str) -> None:
        self._text = f", {text}"

    def line(self, last: str) -> str:
        """`packing: 120/240 frame, 80.0 frame/s, 0:01 left`."""
        seconds = time.monotonic() - self._began
        rate = (self.n - self.initial) / seconds if seconds > 0 else 0.0
        if last == "left":
            seconds = (self.total - self.n) / rate if rate > 0 else 0.0
        pace = f"{rate:.1f} {self.unit}/s" if rate >= 1 or not rate else f"{1 / rate:.1f} s each"
        speed = f"{pace}, {duration(seconds)} {last}"
        return f"{self.label}: {self.n:.0f}/{self.total} {self.unit}, {speed}{self._text}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None and self.n:
            say(self.line("in all"))


def bar(total: int, label: str, unit: str, initial: int = 0) -> Progress:
    """Progress of `total` items: a bar on a terminal, lines elsewhere."""
    if is_hidden() or not (sys.stdout.isatty() and sys.stderr.isatty()):
        return PlainLines(total, label, unit, initial)
    from tqdm import tqdm  # imported late: a launch draws no bar

    return tqdm(total=total, initial=initial, desc=label, unit=unit, leave=True, dynamic_ncols=True)


def track(items: Iterable[Item], total: int, label: str, unit: str) -> Iterator[Item]:
    """Yield `items` and show how many are done."""
    with bar(total, label, unit) as progress:
        for item in items:
            yield item
            progress.update()


def duration(seconds: float) -> str:
    """`0:07`, `12:30` or `1:02:30`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
