"""Errors that the user can correct, packages that are missing, exit codes, numbers in texts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml."""
    return f"pip install 'zoerefine[{extra}]'"


def missing_package(need: str, extra: str) -> UserError:
    """The error where a package of an extra is missing; `need` says what needs which one."""
    return UserError(f"{need}: {install(extra)}")


@contextmanager
def needed(need: str, extra: str) -> Iterator[None]:
    """Import packages of an extra. Raises `UserError` as `missing_package` where one is missing."""
    try:
        yield
    except ImportError:
        raise missing_package(need, extra) from None


def missing_required(package: str) -> UserError:
    """The error where a package is missing that zoerefine requires."""
    return UserError(f"{sys.executable} has no package {package}: {how_to_install()}")


def how_to_install() -> str:
    """How to get what zoerefine requires, in a checkout or without one."""
    folder = Path(__file__).resolve().parents[2]
    if (folder / "Makefile").exists():
        return f"run `make install` once in {folder}, then `. .venv/bin/activate`"
    return "`pip install zoerefine` installs what is missing"
