"""Errors that the user can correct, exit codes, and numbers in texts."""

from zoerefine.base.messages import one_line

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


def number(text: object) -> float:
    """A number, or the number in a text, as any program writes it.

    Raises `ValueError` also for what only Python reads: 1_0, and the digits of other scripts.
    """
    if isinstance(text, str) and ("_" in text or not text.isascii()):
        raise ValueError(text)
    return float(text)  # type: ignore[arg-type]  # it raises TypeError for other things
