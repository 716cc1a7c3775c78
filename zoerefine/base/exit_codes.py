"""Exit codes, and how a command line ends: with an error as one line, or a traceback."""

import os
import signal
import sys
import threading
from collections.abc import Callable

from zoerefine.base.errors import UserError, visible
from zoerefine.base.files.storage_faults import storage_fault

# Exit codes of commands and jobs; docs/exit-codes.md has all.
USER_ERROR, INTERRUPTED, KILLED = 2, 130, 137


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
