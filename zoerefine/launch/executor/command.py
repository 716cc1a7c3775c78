"""The command that every executor runs: our own launcher, as a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from zoerefine.launch.child_process import first_moment
from zoerefine.launch.executor import JobOutcome

LIBRARY = Path(__file__).resolve().parents[3]


class Launch:
    """A launcher at work. What it says before its run exists is kept; the rest is in log.txt."""

    def __init__(self, words: Sequence[str]) -> None:
        paths = [str(LIBRARY), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with us)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoerefine", "run", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            preexec_fn=first_moment(),
            start_new_session=True,
        )

    def poll(self) -> JobOutcome | None:
        """How it ended, or None while it is at work."""
        code = self._process.poll()
        return None if code is None else JobOutcome(128 - code if code < 0 else code, self._last())

    def wait(self) -> JobOutcome:
        """How it ended, once it has."""
        self._process.wait()
        outcome = self.poll()
        assert outcome is not None
        return outcome

    def stop(self) -> None:
        """Ask it to stop with a checkpoint; a second time kills the job."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)

    def _last(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
