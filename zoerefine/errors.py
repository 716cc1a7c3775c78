"""Errors that the user can correct, and how a command line prints them."""

import os
import sys
from collections.abc import Callable


class UserError(Exception):
    """One sentence for the user: what is wrong, where, and what to do.

    Command lines print it as a single line and exit with code 2. Every other exception is a
    defect of ours and keeps its traceback.
    """


def run_command(main: Callable[[], int | None]) -> int:
    """Run a command line's `main` and return the process exit code."""
    try:
        return main() or 0
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `zoerefine show RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
