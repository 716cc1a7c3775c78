"""Launches on this machine, each announced."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zoerefine.base.messages import say
from zoerefine.lab.launch.queue.executor import LaunchProcess, LocalExecutor, Resources


class TalkativeExecutor(LocalExecutor):
    """A local executor that prints every launch."""

    def submit(self, words: Sequence[str], folder: Path) -> LaunchProcess:
        say(f"launching {' '.join(words)}")
        return super().submit(words, folder)


@contextmanager
def talkative_executor(resources: Resources) -> Iterator[TalkativeExecutor]:
    """Nothing is reserved."""
    yield TalkativeExecutor()
