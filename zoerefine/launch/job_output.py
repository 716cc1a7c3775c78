"""A job's output: copied byte for byte as it comes, and kept in log.txt as people would read it."""

import fcntl
import os
import pty
import re
import selectors
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, TextIO

from zoerefine.launch.redaction import hide_secrets

CHUNK = 65536
LONGEST = 2**20  # of a line
LOOK_S = 0.1  # how often to look whether a job that keeps its output open has ended
ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[()][A-Z0-9]")
FAULT = re.compile(r"(error\b.*|[\w.]*(Error|Exception|Interrupt)\b(: .*)?)", re.IGNORECASE)


class Log:
    """Takes bytes, writes lines: of a progress bar its last state, of secrets nothing.

    `last` is the last line that was not empty, `fault` the last one that names an error.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.last = self.fault = ""

    def line(self, line: bytes) -> None:
        """Write one complete line."""
        shown = ESCAPES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2]
        text = hide_secrets(shown.decode(errors="surrogateescape"))
        self.file.write(text.encode(errors="surrogateescape") + b"\n")
        self.last = text.strip() or self.last
        self.fault = text.strip() if FAULT.fullmatch(text.strip()) else self.fault


class Stream:
    """One of the job's outputs on its way to one of ours."""

    def __init__(self, target: TextIO, log: Log) -> None:
        self.target, self.log = target, log
        self.reader, self.writer = pty.openpty() if target.isatty() else os.pipe()
        if target.isatty():
            self._be_plain()
            self.resize()
        self._rest = b""
        self._open = True

    def _be_plain(self) -> None:
        # Our own terminal turns newlines into what it needs; twice would be once too much.
        attributes = termios.tcgetattr(self.writer)
        attributes[1] &= ~termios.OPOST
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.writer, termios.TCSANOW, attributes)

    def resize(self) -> None:
        """Give the job's terminal the size of ours, so that bars fit."""
        if self.target.isatty():
            with suppress(OSError):
                size = fcntl.ioctl(self.target.fileno(), termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(self.reader, termios.TIOCSWINSZ, size)

    def copy(self) -> bool:
        """Copy what is there; False once the job has closed its end."""
        try:
            data = os.read(self.reader, CHUNK)
        except OSError:  # how a terminal says that the other side is gone
            data = b""
        if data:
            self._show(data)
            self._keep(data)
        return bool(data)

    def _show(self, data: bytes) -> None:
        if not self._open:
            return
        try:
            self.target.buffer.write(data)
            self.target.buffer.flush()
        except OSError:  # nobody reads any more: the job goes on, and its log
            self._open = False
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.target.fileno())

    def _keep(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.log.line(line)
        # A bar may run for days before its line ends: only its last state counts.
        start = rest.rstrip(b"\r").rfind(b"\r") + 1
        self._rest = rest[start:]
        if len(self._rest) > LONGEST:
            self.end_line()
        self.log.file.flush()

    def end_line(self) -> None:
        """Write a last line that has no newline."""
        if self._rest:
            self.log.line(self._rest)
            self.log.file.flush()
        self._rest = b""

    def close(self) -> None:
        self.end_line()
        os.close(self.reader)


class Outputs:
    """Both outputs of a job; one stream where both of ours are the same terminal."""

    def __init__(self, log: Log) -> None:
        self.out = Stream(sys.stdout, log)
        shared = sys.stdout.isatty() and sys.stderr.isatty()
        self.err = self.out if shared else Stream(sys.stderr, log)
        self.streams = [self.out] if shared else [self.out, self.err]

    def started(self) -> None:
        """Close our copy of the job's ends, so that its last close is the end."""
        for stream in self.streams:
            os.close(stream.writer)

    def copy_until_end(self, ended: Callable[[], bool]) -> None:
        """Copy until the job has closed its outputs, or has ended and says nothing more.

        What a job leaves running in the background may hold them open for ever.
        """
        with selectors.DefaultSelector() as selector:
            for stream in self.streams:
                selector.register(stream.reader, selectors.EVENT_READ, stream)
            while selector.get_map():
                ready = selector.select(LOOK_S)
                if not ready and ended():
                    break
                for key, _ in ready:
                    if not key.data.copy():
                        selector.unregister(key.fileobj)
        for stream in self.streams:
            stream.close()
