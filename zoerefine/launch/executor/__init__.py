"""Where launches run: here, or on a Ray cluster. An executor has three verbs and nothing else.

A ticket is what `submit` gives for a job; `poll` and `cancel` take it. Another kind of cluster
is another class with the same three.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from zoerefine.errors import UserError


@dataclass(frozen=True)
class JobOutcome:
    """How a launch ended: its exit code, and the last line that the launcher said."""

    code: int
    said: str = ""


class Executor(Protocol):
    """The face of an executor."""

    def submit(self, words: Sequence[str]) -> Any:
        """Start `zoerefine run WORDS...` and return its ticket."""

    def poll(self, ticket: Any) -> JobOutcome | None:
        """How the launch ended, or None while it is not over."""

    def cancel(self, ticket: Any) -> None:
        """Ask the launch to stop with a checkpoint; the second time, kill it."""


@contextmanager
def open_executor(kind: str, gpus: float = 0) -> Iterator[Executor]:
    """The executor of a name: `local` or `ray`.

    Raises:
        UserError: no such kind; Ray is not installed, or its cluster cannot be reached.
    """
    if kind == "local":
        from zoerefine.launch.executor.local import LocalExecutor

        yield LocalExecutor()
    elif kind == "ray":
        from zoerefine.launch.executor.ray_cluster import ray_executor

        with ray_executor(gpus) as executor:
            yield executor
    else:
        raise UserError(f"no executor {kind!r}: there are local and ray")
