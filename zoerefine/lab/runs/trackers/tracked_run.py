"""A run as any tracker recorded it, and what a tracker's module offers."""

import ast
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from zoerefine.lab.runs.metrics.series import Series
from zoerefine.lab.runs.record import FURTHER_ZEROS

INSTALL = "pip install 'zoerefine[trackers]'"
LONGEST_PARAMETER = 2000  # characters of a text that may be a Python value
VALUE_TYPES = bool | int | float | list


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
        faults: what could not be read, one sentence each.
        again: the first step to which a metric goes back or of which it has two values, by metric.
        id: what a copy of the run keeps; empty: the last part of the path.
    """

    path: str
    name: str
    state: str
    settings: dict[str, Any]
    finals: dict[str, float]
    series: dict[str, Series]
    commit: str = ""
    faults: list[str] = field(default_factory=list)
    again: Mapping[str, float] = field(default_factory=dict)
    id: str = ""


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
