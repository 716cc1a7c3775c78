"""Where launches run: on this machine, or on a cluster.

An executor has three verbs: `submit` starts a launch and returns its ticket, `poll` and `cancel`
take the ticket. To add a kind of cluster, write one file with a context manager like
`local.local_executor` and a row in `zoerefine.registries.EXECUTORS`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from zoerefine.registries import EXECUTORS


@dataclass(frozen=True)
class Resources:
    """What a cluster reserves for each job. Each field is an option of `run` and `search`.

    Attributes:
        gpus: a fraction lets jobs share a GPU.
    """

    gpus: float = field(
        default=0.0, metadata={"help": "GPUs reserved for each job; 0.5: two jobs share one"}
    )


NO_RESOURCES = Resources()


@dataclass(frozen=True)
class JobOutcome:
    """How a launch ended.

    Attributes:
        code: the exit code as a shell gives it: 128 + N after signal N.
        message: the launcher's last line; empty where it is not known.
    """

    code: int
    message: str = ""


class Executor(Protocol):
    """Runs launches somewhere."""

    def submit(self, words: Sequence[str]) -> Any:
        """Start `zoerefine run WORDS...` and return its ticket."""

    def poll(self, ticket: Any) -> JobOutcome | None:
        """How the launch ended; None while it runs."""

    def cancel(self, ticket: Any) -> None:
        """Ask the launch to save a checkpoint and stop; a second call kills it."""


def open_executor(
    name: str, resources: Resources = NO_RESOURCES
) -> AbstractContextManager[Executor]:
    """The executor of a name in `registries.EXECUTORS`.

    Raises:
        UserError: no such executor; its package is not installed, or its cluster cannot be
            reached; it does not know these resources.
    """
    EXECUTORS.check(name, "--executor")
    opened: AbstractContextManager[Executor] = EXECUTORS.load(name)(resources)
    return opened
