"""Launches as processes of this machine."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.environment.variables import LIBRARY, python_path
from zoerefine.lab.launch.process.board import ONLY, NodePlace
from zoerefine.lab.launch.process.child import child_setup
from zoerefine.lab.launch.queue.executor import JobOutcome, Resources, refuse_resources


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


@contextmanager
def local_executor(resources: Resources) -> Iterator["LocalExecutor"]:
    """Raises `UserError` where resources are asked for: nothing here can reserve them."""
    if resources.gpus:
        raise UserError(
            "--executor local cannot reserve GPUs, its jobs see all of them: leave out --gpus, "
            "and set CUDA_VISIBLE_DEVICES to choose"
        )
    refuse_resources("local", resources, ())
    yield LocalExecutor()


class LocalExecutor:
    """Each ticket is a launcher's process."""

    keeps_jobs = False

    def submit(self, words: Sequence[str], folder: Path) -> LaunchProcess:
        return LaunchProcess(words)

    def poll(self, ticket: LaunchProcess) -> JobOutcome | None:
        return ticket.poll()

    def cancel(self, ticket: LaunchProcess) -> None:
        ticket.stop()
