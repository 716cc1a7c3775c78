"""Progress: bars only on a terminal, plain lines elsewhere."""

import os
import pty
import subprocess
import sys
import termios

import pytest

from zoerefine.base import progress
from zoerefine.base.errors import UserError


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets: clock[0] = 5.0."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_pipe_gets_whole_lines_at_growing_intervals(clock, capsys):
    with progress.bar(1000, "packing", "frame") as shown:
        for second in range(1, 1001):
            clock[0] = float(second)
            shown.update()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "packing: 10/1000 frame, 1.0 frame/s, 16:30 left"
    assert lines[-1] == "packing: 1000/1000 frame, 1.0 frame/s, 16:40 in all"
    assert 10 < len(lines) < 40  # of 1000 seconds


def test_resumed_items_do_not_count_in_the_rate(clock, capsys):
    with progress.bar(100, "packing", "frame", 50) as shown:
        clock[0] = 5.0
        shown.update(10)
        shown.set_postfix_str("2 broken")
    line = capsys.readouterr().err
    assert line == "packing: 60/100 frame, 2.0 frame/s, 0:05 in all, 2 broken\n"


def test_a_failure_has_no_last_line(capsys):
    with pytest.raises(UserError), progress.bar(2, "packing", "frame") as shown:
        shown.update()
        raise UserError("broken")
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_and_a_pipe_does_not():
    code = ("from zoerefine.base.messages import say\n"
            "from zoerefine.base.progress import track\n"
            "for k in track(range(3), 3, 'packing', 'frame'): say(f'message {k}')")  # fmt: skip
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 80))
    subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=writer, check=True)
    os.close(writer)
    assert b"\r" in os.read(reader, 65536).replace(b"\r\n", b"")
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr
    assert b"\r" not in piped
    assert [line[:9] for line in piped.splitlines()] == [b"message 0", b"message 1", b"message 2",
                                                         b"packing: "]  # fmt: skip
