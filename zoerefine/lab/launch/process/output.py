"""A job's output: copied live, and kept as readable lines in log.txt."""

import fcntl
import os
import pty
import re
import selectors
import sys
import termios
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, TextIO

from zoerefine.base.errors import UserError
from zoerefine.base.messages import heard_by, is_quiet
from zoerefine.base.run_dir import RunDir, run_from_launcher
from zoerefine.base.secrets import hide_secrets
from zoerefine.lab.launch.process.end_reason import LastWords

CHUNK = 65536
MAX_LINE_BYTES = 2**20
POLL_S = 0.1  # how often to check whether a job has ended while its output is still open
ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[()][A-Z0-9]")


class OutputLog:
    """Writes log.txt: only the last state of a progress bar, no colours, no secrets."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    @cached_property
    def last_words(self) -> LastWords:
        """What the lines say of the job's end."""
        return LastWords()

    def write_line(self, line: bytes, is_stderr: bool = True) -> None:
        """Write one complete line."""
        shown = ESCAPES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2]
        text = hide_secrets(shown.decode(errors="surrogateescape"))
        self.file.write(text.encode(errors="surrogateescape") + b"\n")
        self.last_words.hear(text.strip(), is_stderr)


class OutputStream:
    """Copies one output of the job (stdout or stderr) to ours and to the log.

    Args:
        is_stderr: whether stderr comes this way; on a terminal both do.
    """

    def __init__(self, target: TextIO, log: OutputLog, is_stderr: bool) -> None:
        self.target, self.log, self.is_stderr = target, log, is_stderr
        self.reader, self.writer = pty.openpty() if target.isatty() else os.pipe()
        if target.isatty():
            self._turn_off_processing()
            self.resize()
        self._rest = b""
        self._open = True

    def _turn_off_processing(self) -> None:
        # Our own terminal converts newlines already.
        attributes = termios.tcgetattr(self.writer)
        attributes[1] &= ~termios.OPOST
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.writer, termios.TCSANOW, attributes)

    def resize(self) -> None:
        """Give the job's terminal the size of ours, so that progress bars fit."""
        if self.target.isatty():
            with suppress(OSError):
                size = fcntl.ioctl(self.target.fileno(), termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(self.reader, termios.TIOCSWINSZ, size)

    def copy(self) -> bool:
        """Copy what the job has written; False once it has closed its end."""
        try:
            data = os.read(self.reader, CHUNK)
        except OSError:  # a terminal whose other end is closed
            data = b""
        if data:
            self._show(data)
            self._keep(data)
        return bool(data)

    def _show(self, data: bytes) -> None:
        if not self._open or is_quiet():
            return
        try:
            self.target.buffer.write(data)
            self.target.buffer.flush()
        except OSError:  # our output is closed: the job and its log continue
            self._open = False
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.target.fileno())

    def _keep(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.log.write_line(line, self.is_stderr)
        # A progress bar may not end its line for days: keep only its last state.
        start = rest.rstrip(b"\r").rfind(b"\r") + 1
        self._rest = rest[start:]
        if len(self._rest) > MAX_LINE_BYTES:
            self.end_line()
        self.log.file.flush()

    def end_line(self) -> None:
        """Write a line that has no newline yet."""
        if self._rest:
            self.log.write_line(self._rest, self.is_stderr)
            self.log.file.flush()
        self._rest = b""

    def close(self) -> None:
        self.end_line()
        os.close(self.reader)


class Outputs:
    """Both outputs of a job; a single stream where both of ours are one terminal."""

    def __init__(self, log: OutputLog) -> None:
        shared = sys.stdout.isatty() and sys.stderr.isatty()
        self.out = OutputStream(sys.stdout, log, is_stderr=shared)
        self.err = self.out if shared else OutputStream(sys.stderr, log, is_stderr=True)
        self.streams = [self.out] if shared else [self.out, self.err]

    def close_writers(self) -> None:
        """Close our copies of the job's ends, so that we see when the job closes its own."""
        for stream in self.streams:
            os.close(stream.writer)

    def copy_until_end(self, ended: Callable[[], bool]) -> None:
        """Copy until the job has closed its outputs, or has ended and writes nothing more.

        A process that the job left in the background may keep the outputs open.
        """
        with selectors.DefaultSelector() as selector:
            for stream in self.streams:
                selector.register(stream.reader, selectors.EVENT_READ, stream)
            while selector.get_map():
                ready = selector.select(POLL_S)
                if not ready and ended():
                    break
                for key, _ in ready:
                    if not key.data.copy():
                        selector.unregister(key.fileobj)
        for stream in self.streams:
            stream.close()


@contextmanager
def kept_log(run: RunDir) -> Iterator[None]:
    """While entered, append every message to log.txt; a launcher does that for its jobs."""
    if run_from_launcher() == run:
        yield
        return
    with open(run.log_file, "ab") as file:
        log = OutputLog(file)

        def keep(text: str) -> None:
            for line in text.splitlines():
                log.write_line(line.encode(errors="surrogateescape"))
            file.flush()

        with heard_by(keep):
            try:
                yield
            except UserError as error:
                keep(f"error: {error}")
                raise
            except KeyboardInterrupt:
                keep("interrupted")
                raise
            except Exception:
                keep(traceback.format_exc())
                raise


TAIL_BYTES = 4096


def last_line(path: Path) -> str:
    """The last complete line of a file; empty where there is none yet."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").rsplit("\n", 1)[0].splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""
