"""Launches as processes of this machine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.launch.executor import JobOutcome, Resources, refuse_resources
from zoerefine.launch.executor.launch_process import LaunchProcess


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
