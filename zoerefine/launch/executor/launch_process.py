"""What every executor starts: our own launcher as a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import IO

from zoerefine.launch.child_process import child_setup
from zoerefine.launch.executor import JobOutcome
from zoerefine.launch.node_place import ONLY, NodePlace
from zoerefine.launch.python_path import LIBRARY, python_path


class LaunchProcess:
    """A running `zoerefine run`, with its messages. The job's output is in the run's log.txt."""

    def __init__(
        self, words: Sequence[str], ignores_sigterm: bool = False, place: NodePlace = ONLY
    ) -> None:
        """Start it.

        Args:
            place: of this node in a job of several.
            ignores_sigterm: for a cluster that sends SIGTERM to the job itself, too, and the
                launcher would pass on a second one.
        """
        path = python_path(os.environ, LIBRARY)
        environment = {**os.environ, "PYTHONPATH": path, **place.variables()}
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with us)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoerefine", "run", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            preexec_fn=partial(prepare, child_setup(), ignores_sigterm),
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

    def messages(self) -> str:
        """What it has printed, once it has ended."""
        self._messages.seek(0)
        return self._messages.read().decode(errors="replace").strip()

    def _last_message(self) -> str:
        lines = self.messages().splitlines()
        return lines[-1] if lines else ""


def prepare(setup: Callable[[], None], ignores_sigterm: bool) -> None:
    """In the new process, before the launcher starts."""
    setup()
    if ignores_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
