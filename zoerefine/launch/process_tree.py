"""Ends a process with everything that it has started, also in sessions of their own."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def kill_tree(pid: int) -> None:
    """Kill a process, and all below it."""
    with suppress(OSError):  # it has ended, or has become another user's
        os.kill(pid, signal.SIGSTOP)  # it starts no other one now
    children = [*children_of(pid)]  # before they get another parent
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    for child in children:
        kill_tree(child)


def children_of(pid: int) -> Iterator[int]:
    """The processes that a process has started and that run."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                yield int(entry.name)
