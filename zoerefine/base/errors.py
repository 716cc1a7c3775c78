"""Errors that the user can correct, how a command line prints them, and texts in messages."""

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence

# Faults of a disk, of permissions or of a path: nothing that our code could do better.
STORAGE_FAULTS = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.EFBIG,
    errno.EIO,
    errno.EISDIR,
    errno.ELOOP,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENFILE,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
    errno.ESTALE,
}
FULL = {errno.EDQUOT, errno.EFBIG, errno.ENOSPC}
# Exit codes of commands and jobs; docs/exit-codes.md has all.
USER_ERROR, INTERRUPTED, KILLED = 2, 130, 137
SQLITE_FAULTS = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")


class UserError(Exception):
    """One sentence for the user: what is wrong, where, and what to do.

    Command lines print it as a single line and exit with code 2, and so they do for a disk that
    is full or cannot be written. Every other exception is a defect of ours and keeps its traceback.
    """


def run_command(main: Callable[[], int | None]) -> int:
    """Run a command line's `main` and return the process exit code."""
    threading.excepthook = _report_thread
    _open_closed_streams()
    try:
        # Who started this process may have blocked it until here: see `LaunchProcess`.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        code = main() or 0
        sys.stdout.flush()
        return code
    except UserError as error:
        return _fail(str(error))
    except KeyboardInterrupt as error:
        print(str(error) or "interrupted; run the same command again to resume", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `zoerefine show RUN | head`
        _discard_output()
        return 0
    except Exception as error:
        if not (fault := storage_fault(error)):
            raise
        _discard_output()  # what is left in its buffer cannot be written either
        return _fail(fault)


def storage_fault(error: BaseException | None) -> str:
    """The fault of a disk, of permissions or of a path behind an exception, as a line, or empty."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in STORAGE_FAULTS:
            where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
            hint = "; make room, then run the same command again" if error.errno in FULL else ""
            return f"{where}{os.strerror(error.errno)}{hint}"
        if isinstance(error, FileNotFoundError) and not error.filename and not _has_folder():
            return "the current folder was removed: change to another one"
        if isinstance(error, UnicodeEncodeError) and error.reason.startswith("surrogates"):
            name = error.object[max(0, error.start - 60) : error.end + 20]
            return f"a name that is not UTF-8 cannot be recorded: rename what {name!a} names"
        if rust := re.search(r"\(os error (\d+)\)", str(error)):  # of safetensors
            return storage_fault(OSError(int(rust[1]), ""))
        if getattr(error, "sqlite_errorname", "").startswith(SQLITE_FAULTS):
            return f"the study's database cannot be used: {error}"
        error = error.__cause__ or error.__context__
    return ""


def _has_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def damage(error: Exception) -> str:
    """Why something of the user's cannot be read, as a line."""
    named = isinstance(error, UserError | OSError)
    return one_line(str(error) if named else f"it is damaged ({type(error).__name__}: {error})")


def _open_closed_streams() -> None:
    """Give standard streams that the caller has closed (`>&-`) to /dev/null.

    Otherwise the next files would get their numbers, and child processes would write into those.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _report_thread(ended: threading.ExceptHookArgs) -> None:
    """Report the exception that ended a thread; a fault of a disk as a line."""
    if fault := storage_fault(ended.exc_value):
        print(f"warning: {fault}", file=sys.stderr)
    else:
        threading.__excepthook__(ended)


def _fail(message: str) -> int:
    """Print an error as one line; returns the exit code."""
    print(f"error: {visible(' '.join(message.split()))}", file=sys.stderr)
    return USER_ERROR


def _discard_output() -> None:
    """Standard output goes nowhere from here on, so that the interpreter's last flush succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def first_few(names: Sequence[str], most: int, word: str = "") -> str:
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
