"""The stores of trackers: files and folders that hold the runs of one, found, and read as logs.

A run is the same whichever tracker recorded it, and each tracker's module offers the same.
"""

import ast
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Protocol

from zoerefine.base.errors import UserError, damage
from zoerefine.base.registries import TRACKERS
from zoerefine.base.yaml.equal_values import FURTHER_ZEROS
from zoerefine.lab.runs.metrics.find_files import natural_order
from zoerefine.lab.runs.metrics.metric_log import Kind, MetricLog
from zoerefine.lab.runs.metrics.steps import Series

EXTRA = "trackers"  # what installs the libraries of trackers
LONGEST_PARAMETER = 2000  # characters of a text that may be a Python value
VALUE_TYPES = bool | int | float | list
LEVELS = 4  # how deep folders are searched
LATEST = "latest-run"  # W&B's link to a run beside it, in some copies a folder
LOCAL_PREFIXES = ("sqlite:///", "file://")
EXPERIMENT_FILE, WANDB_SUFFIX = "meta.yaml", ".wandb"


@dataclass(frozen=True)
class TrackedRun:
    """One run of a tracker.

    Attributes:
        path: names the run among all others; its folder where it has one.
        name: what the user called it; empty: nothing.
        state: one of `run_dir.STATES`.
        settings: by key, as JSON can hold them.
        finals: the final value of every metric.
        series: metrics over steps.
        commit: empty where it was not recorded.
        places: where the tracker keeps it and whose it is, by `group_key.PLACES`.
        faults: what could not be read, one sentence each.
        again: the first step to which a metric goes back or of which it has two values, by metric.
        started: in seconds since the epoch; 0: not known.
        id: what a copy of the run keeps, and a folder beside it in which it goes on; empty: the
            last part of the path.
        parent: the id of the run that it is nested in; empty: none.
    """

    path: str
    name: str
    state: str
    settings: dict[str, Any]
    finals: dict[str, float]
    series: dict[str, Series]
    commit: str = ""
    places: Mapping[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    again: Mapping[str, float] = field(default_factory=dict)
    started: float = 0.0
    id: str = ""
    parent: str = ""


@dataclass(frozen=True)
class Stored:
    """The runs of a store, and the paths of those that cannot be read with the reason."""

    runs: list[TrackedRun]
    left_out: Mapping[str, str] = field(default_factory=dict)


class Tracker(Protocol):
    """The names of a module that reads a tracker's runs."""

    def holds_runs(self, path: Path) -> bool:
        """Whether a file or folder is a store of this tracker. Folders inside are not searched."""

    def read(self, path: Path, names: Sequence[str] | None) -> Stored:
        """Read a store.

        Args:
            names: metrics whose series are read; None: all.

        Raises:
            UserError, OSError: the store cannot be read at all, or its library is not installed.
        """


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


def find_store(path: Path) -> TrackerStore | None:
    """The store that a file shows to be there; None for another file."""
    if path.suffix == WANDB_SUFFIX:
        return TrackerStore("wandb", path.parent)
    is_folder = path.name == EXPERIMENT_FILE
    is_mlflow = load_tracker("mlflow").holds_runs(path.parent if is_folder else path)
    place = path.parent.parent if is_folder else path
    return TrackerStore("mlflow", place) if is_mlflow else None


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


@dataclass(kw_only=True)
class StoreLog(MetricLog):
    """A store, read again whenever it has changed.

    Of several runs in it the last one counts, and one that holds nested runs before these. Where a
    metric goes on at the step at which an earlier run has ended, as after a resume, it has the
    values of both.

    Attributes:
        is_resumed: the job was started again, so that steps may come again.
    """

    kind: Kind = Kind.STORES
    store: TrackerStore
    is_resumed: bool = False
    stamps: list[list[Any]] = field(default_factory=list)

    def update(self, ended: bool) -> None:
        """Read the store if it has changed."""
        stamps = self.store.stamps()
        if stamps == self.stamps:
            return
        self.stamps, self.finals, self.faults = stamps, {}, {}
        self.points, self.again = {}, {}
        try:
            stored = self.store.read(None)
        except Exception as error:  # whatever is in its files, other logs are read
            self.faults["store"] = damage(error)
            return
        self.faults |= stored.left_out
        for run in sorted(stored.runs, key=lambda run: not run.parent):  # nested ones first
            for name, series in run.series.items():
                self._continue(name, series)
            self.finals |= run.finals
            self.hyperparameters |= run.settings
            self.again |= {} if self.is_resumed else run.again
            self.faults |= {fault: fault for fault in run.faults}

    def _continue(self, name: str, series: Series) -> None:
        """Take a metric of a later run. What began again replaces what was there."""
        known, first = self.points.get(name, {}), next(iter(series.steps), inf)
        if known and first <= max(known) and not self.is_resumed:
            self.again.setdefault(name, first)
        values = dict(zip(series.steps, series.values, strict=True))
        self.points[name] = values if known and first <= min(known) else known | values


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables that a tracker's library reads; jobs that start later do not get them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})


def parameter_value(text: str) -> Any:
    """The value of a parameter that was recorded as `str(value)`; else the text itself."""
    if len(text) > LONGEST_PARAMETER or FURTHER_ZEROS.fullmatch(text):  # no str(value)
        return text
    if text == "None":
        return None
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
    value = list(value) if isinstance(value, tuple) else value
    return value if isinstance(value, VALUE_TYPES) else text
