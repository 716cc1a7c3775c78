"""The child process of a launch: live output, a log without secrets, signals, its end recorded."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from zoerefine.launch.provenance import add, hide_secrets
from zoerefine.run_dir import RunDir

CHUNK = 65536
INTERRUPTED = 130


def run_child(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], run: RunDir, lock: int
) -> int:
    """Run a job to its end and record in `status.json` how it ended; returns its exit code.

    The child inherits the lock's descriptor, so the run stays locked as long as either lives.
    """
    run.set_status("running")
    # A terminal of its own lets the child draw progress bars where we can show them.
    reader, writer = pty.openpty() if sys.stdout.isatty() else os.pipe()
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
        start_new_session=True,
        pass_fds=(lock,) if lock >= 0 else (),
    )
    os.close(writer)
    with Signals(child) as signals, open(run.log_file, "ab") as file:
        log = Log(file)
        copy_output(reader, log)
        code = child.wait()
    os.close(reader)
    code = 128 - code if code < 0 else code
    killed = signals.count > 0 or code > 128
    state = "killed" if killed else "failed" if code else "finished"
    run.set_status(state, "" if code == 0 else log.last or f"exit code {code}")
    add(run, exit_status=code)
    return code


def copy_output(reader: int, log: "Log") -> None:
    """Copy what the child prints to our output and the log, until it has closed its end."""
    while True:
        try:
            data = os.read(reader, CHUNK)
        except OSError:  # how a terminal says that the other side is gone
            return
        if not data:
            return
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        log.write(data)


class Log:
    """Writes lines as they are complete: of a progress bar its last state, of secrets nothing.

    `last` is the last line that was not empty.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.last = ""
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Take output as it comes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            last_state = line.rstrip(b"\r").rpartition(b"\r")[2]
            text = hide_secrets(last_state.decode(errors="surrogateescape"))
            self.file.write(text.encode(errors="surrogateescape") + b"\n")
            self.last = text.strip() or self.last
        self.file.flush()


class Signals:
    """Passes Ctrl-C and SIGTERM on to the child's whole group; the second time it is killed."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self.child = child
        self.count = 0

    def __enter__(self) -> "Signals":
        self._old = {n: signal.signal(n, self._pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, _: object) -> None:
        self.count += 1
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, number if self.count == 1 else signal.SIGKILL)
