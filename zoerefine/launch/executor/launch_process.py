"""What every executor starts: our own launcher as a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from zoerefine.launch.child_process import child_setup
from zoerefine.launch.executor import JobOutcome

LIBRARY = Path(__file__).resolve().parents[3]


class LaunchProcess:
    """A running `zoerefine run`, with its messages. The job's output is in the run's log.txt."""

    def __init__(self, words: Sequence[str]) -> None:
        paths = [str(LIBRARY), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with us)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoerefine", "run", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            preexec_fn=child_setup(),
            start_new_session=True,
        )

    def poll(self) -> JobOutcome | None:
        """How it ended; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return JobOutcome(128 - code if code < 0 else code, self._last_message())

    def wait(self) -> JobOutcome:
        """How it ended, once it has."""
        self._process.wait()
        outcome = self.poll()
        assert outcome is not None
        return outcome

    def stop(self) -> None:
        """Ask it to save a checkpoint and stop; a second call kills the job."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)

    def _last_message(self) -> str:
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
