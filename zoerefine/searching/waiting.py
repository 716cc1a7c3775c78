"""Says what a study waits for: a lock that another process holds, and how to go on."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoerefine.progress import warn
from zoerefine.run_dir import RunDir

SAID_AFTER_S = 2.0  # a lock that is held for longer than a write takes


def waits_for_run(run: RunDir) -> str:
    """What a trial waits for whose run another process still writes."""
    status = run.status()
    return f"{run.path} is still being written by {process_line(status.pid, status.host)}"


def process_line(pid: int, host: str) -> str:
    """A process, whether it is stopped, and how to end it."""
    where = f"process {pid} on {host or 'another machine'}"
    if host == socket.gethostname() and is_stopped(pid):
        return (
            f"{where}, which is stopped: `kill -CONT {pid}` lets it save its checkpoint and end, "
            f"`kill -9 {pid}` ends it"
        )
    return f"{where}: wait for it to end, or end it with `kill -9 {pid}` there"


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine is stopped, as by SIGSTOP or Ctrl-Z."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return bool(fields) and fields[0] in "Tt"


@contextmanager
def said_if_long(what: str, holder: Path) -> Iterator[None]:
    """Print what is waited for, once, if the body takes longer than a moment.

    Args:
        holder: the lock's file, in which its holder wrote its process and machine.
    """

    def say_it() -> None:
        pid, _, host = holder.read_text(errors="replace").strip().partition(" ")
        by = process_line(int(pid), host) if pid.isdigit() else "another process"
        warn(f"waiting for {what}, which is held by {by}")

    timer = threading.Timer(SAID_AFTER_S, say_it)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
