"""Finds the stores of trackers: files and folders that hold the runs of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.registries import TRACKERS
from zoerefine.lab.runs.metrics.find_files import natural_order
from zoerefine.lab.runs.trackers.tracked_run import Stored, Tracker

LEVELS = 4  # how deep folders are searched
LATEST = "latest-run"  # W&B's link to a run beside it, in some copies a folder
LOCAL_PREFIXES = ("sqlite:///", "file://")


@dataclass(frozen=True)
class TrackerStore:
    """A file or folder that a tracker wrote.

    Attributes:
        tracker: its name in `registries.TRACKERS`.
    """

    tracker: str
    path: Path

    def read(self, names: Sequence[str] | None = ()) -> Stored:
        """Its runs; see `Tracker.read`."""
        return load_tracker(self.tracker).read(self.path, names)

    def stamps(self) -> list[list[Any]]:
        """Name, size and time of every file that it consists of."""
        if self.path.is_dir():
            files = sorted(path for path in self.path.rglob("*") if path.is_file())
        else:  # a database, and what it did not merge into its file yet
            files = [self.path, self.path.with_name(f"{self.path.name}-wal")]
        found = [(path, path.stat()) for path in files if path.exists()]
        return [[str(path), status.st_size, status.st_mtime_ns] for path, status in found]


def load_tracker(name: str) -> Tracker:
    """The module that reads a tracker's runs. It imports the tracker's library when it reads."""
    return TRACKERS.load(name)


def find_stores(path: Path, levels: int = LEVELS) -> Iterator[TrackerStore]:
    """The stores at a path and in the folders below it. Links and hidden folders are left out."""
    for name in TRACKERS:
        if load_tracker(name).holds_runs(path):
            yield TrackerStore(name, path)
            return
    if not levels or not path.is_dir():
        return
    order = sorted(path.iterdir(), key=lambda inner: natural_order(inner.name))
    for inner in sorted(order, key=lambda inner: inner.name == LATEST):
        if not inner.name.startswith(".") and not inner.is_symlink():
            yield from find_stores(inner, levels - 1)


def local_path(text: str) -> str:
    """A path, also where it was given as the address of a local store.

    Raises `UserError` for the address of a server.
    """
    for prefix in LOCAL_PREFIXES:
        if text.startswith(prefix):
            return text.removeprefix(prefix)
    scheme, separator, _ = text.partition("://")
    if separator and scheme.isalnum():
        raise UserError(f"{scheme}:// is the address of a server: give a folder or file here")
    return text
