"""Errors that the user can correct, exit codes, and texts in messages."""

from collections.abc import Sequence

# Exit codes of commands and jobs; docs/exit-codes.md has all.
USER_ERROR, INTERRUPTED, KILLED = 2, 130, 137


class UserError(Exception):
    """One sentence for the user: what is wrong, where, and what to do.

    Command lines print it as a single line and exit with code 2, and so they do for a disk that
    is full or cannot be written. Every other exception is a defect of ours and keeps its traceback.
    """


def damage(error: Exception) -> str:
    """Why something of the user's cannot be read, as a line."""
    named = isinstance(error, UserError | OSError)
    return one_line(str(error) if named else f"it is damaged ({type(error).__name__}: {error})")


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


def number(text: object) -> float:
    """A number, or the number in a text, as any program writes it.

    Raises `ValueError` also for what only Python reads: 1_0, and the digits of other scripts.
    """
    if isinstance(text, str) and ("_" in text or not text.isascii()):
        raise ValueError(text)
    return float(text)  # type: ignore[arg-type]  # it raises TypeError for other things
