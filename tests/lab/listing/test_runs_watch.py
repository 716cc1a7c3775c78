"""The lists of runs and of stored folders in a real terminal of 80 columns."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress

TO_THE_TOP = "\x1b[H"
LAST_LINE = "Ctrl-C ends"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Terminal:
    """A command in a terminal of 80 x 24 characters."""

    def __init__(self, folder, *words):
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zoerefine", *words], cwd=folder,
            stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
        )  # fmt: skip
        os.close(follower)
        self.data = b""

    def read_until(self, *wanted):
        """The page, once all of these texts are on it and its last line was printed."""
        page, deadline = "", time.monotonic() + 180
        while not all(text in page for text in (*wanted, LAST_LINE)):
            assert time.monotonic() < deadline, page
            if select.select([self.leader], [], [], 0.1)[0]:
                self.data += os.read(self.leader, 65536)
            # Several pages may have come, and a part of the next one.
            pages = self.text.split(TO_THE_TOP)
            page = CODES.sub("", next((p for p in reversed(pages) if LAST_LINE in p), ""))
        return page

    @property
    def text(self):
        return self.data.decode(errors="replace")

    def read_all(self):
        """Everything that the command prints, of bars what stays."""
        with suppress(OSError):  # the process has closed the terminal
            while data := os.read(self.leader, 65536):
                self.data += data
        os.close(self.leader)
        assert self.process.wait(180) == 0
        lines = CODES.sub("", self.text).replace("\r\n", "\n").split("\n")
        return "\n".join(line.rpartition("\r")[2] for line in lines)

    def stop(self):
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        end = time.monotonic() + 180
        while self.process.poll() is None and time.monotonic() < end:
            with suppress(OSError):  # the process has closed the terminal
                if select.select([self.leader], [], [], 0.1)[0]:
                    self.data += os.read(self.leader, 65536)
        os.close(self.leader)
        return self.process.wait(1)


def test_the_page_fits_80_columns_follows_changes_and_ends_with_ctrl_c(runs, writer):
    folder = runs.add("unet/a", state="killed", started=1.6e9)
    for number in range(40):
        runs.add(f"{'long' * 20}/{number:04d}", 0.1, started=1.7e9 + number)
    hostile = runs.add("odd/x", 0.2, started=1.79e9)
    (hostile / ".labels.json").write_text('{"note": "\\u001b[2J 深度深度深度深度深度深度深度深度"}')
    terminal = Terminal(runs.root, "runs", "--watch")
    try:
        page = terminal.read_until("42 runs")
        lines = page.replace("\r", "").splitlines()
        assert max(map(len, lines)) <= 80 and len(lines) <= 25
        assert "21 more" in page and "\\x1b[2J" in page
        process = writer(folder)
        page = terminal.read_until("(1 running")
        assert page.index("unet/a") < page.index("odd/x")  # running runs come first
        process.communicate("")
        terminal.read_until("42 runs (42 finished)")
        assert terminal.stop() == 0
        assert "Traceback" not in terminal.text
        assert "\x1b[?1049l" in terminal.text  # the screen from before comes back
    finally:
        terminal.process.kill()
        terminal.process.wait()


def test_lists_fit_80_columns(runs, monkeypatch):
    runs.add("unet/b10eedb0-c56f2c94", 0.1)
    runs.add(f"{'long' * 20}/b10eedb0-c56f2c94", 0.1)
    runs.run("runs/unet/b10eedb0-c56f2c94", "--note", "word " * 20)
    page = Terminal(runs.root, "runs").read_all()
    assert max(map(len, page.splitlines())) <= 80 and "unet/b10eedb0-c56f2c94 word" in page
    assert f"{'long' * 20}/b10eedb0-c56f2c94" in page.replace("\n  ", "")
    (runs.root / "home/workspaces/digits-4fca2432c4ff" / f"{'b10eedb0' * 5}.0").mkdir(parents=True)
    page = Terminal(runs.root, "run", "--list", "--home", "home").read_all()
    assert max(map(len, page.splitlines())) <= 80 and "digits-4fca2432c4ff/b10eedb0.0" in page
