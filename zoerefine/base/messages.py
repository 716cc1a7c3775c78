"""Messages and warnings on stderr, above a progress bar; --quiet hides messages, not warnings."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_quiet = False
_listeners: list[Callable[[str], None]] = []


def be_quiet(quiet: bool = True) -> None:
    """Hide progress and messages of this process from now on, or show them again."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Whether progress and messages are hidden: --quiet."""
    return _quiet


def silent() -> bool:
    """Whether this is a torchrun process other than the first, which prints for all."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK") != "0"


def is_hidden() -> bool:
    """Whether this process shows no progress and no messages."""
    return _quiet or silent()


def say(line: str) -> None:
    """Print a message on stderr, above a progress bar if one is drawn."""
    show(line, hidden=is_hidden())


def warn(line: str) -> None:
    """Print a warning on stderr, even if quiet."""
    show(f"warning: {line}", hidden=silent())


def show(line: str, hidden: bool) -> None:
    """Give a message to who listens, and print it unless it is hidden."""
    for listener in _listeners:
        listener(line)
    if hidden:
        return
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr)


@contextmanager
def heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """While entered, `listener` gets every message, also where none is printed."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
