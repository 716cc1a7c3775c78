"""Messages and warnings on stderr, above a progress bar, and how texts look in them.

--quiet hides messages, not warnings.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
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


# Texts of others as a terminal may show them: control characters are written as escapes.

LONGEST_LINE = 400  # characters of a message about damaged content


def visible(text: str) -> str:
    """A line in which every character that is not printed, such as ESC, is written as `\\x1b`."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def one_line(text: str) -> str:
    """A text of any length and content as one line of a message."""
    line = visible(" ".join(text[: 2 * LONGEST_LINE].split()))
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`, `1,000 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def first_few(names: Sequence[str], most: int = 8, word: str = "") -> str:
    """The first names in a line, and how many more there are: `a, b, 3 more`."""
    more = [f"{word}{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])
