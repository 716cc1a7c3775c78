"""Launches as processes of this machine."""

from collections.abc import Sequence

from zoerefine.launch.executor import JobOutcome
from zoerefine.launch.executor.command import Launch


class LocalExecutor:
    """Each ticket is a launcher's process."""

    def submit(self, words: Sequence[str]) -> Launch:
        return Launch(words)

    def poll(self, ticket: Launch) -> JobOutcome | None:
        return ticket.poll()

    def cancel(self, ticket: Launch) -> None:
        ticket.stop()
