"""What a study needs from whatever it searches: our own training, or a script of any repository.

Claims, heartbeats, pruning, records and retries are the same for both; they are in `study/` and
`worker.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from zoerefine.base.config.study_keys import StudyKeys
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.search.space.space import Parameter, Values
from zoerefine.lab.search.study.trials import Criteria


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended.

    Attributes:
        figures: what was measured, by name.
        reason: why it was pruned or failed; empty where it ran to its end.
        note: Markdown for the dashboard.
    """

    figures: Mapping[str, float]
    reason: str = ""
    note: str = ""


class ClaimLost(Exception):
    """Another worker has this trial now, because this one's heartbeat was late."""


class NoSuchMetric(UserError):
    """A trial ran to its end and has other metrics than the one that is searched for."""


class TrialMonitor(Protocol):
    """What a running trial reports to its study.

    Attributes:
        known: figures that were known before the trial began.
    """

    known: Mapping[str, float]

    @property
    def claim_words(self) -> Sequence[str]:
        """The trial's number and the claim's id, for another process that reports."""

    def check_held(self) -> None:
        """Raises `ClaimLost` where another worker has taken the trial over."""

    def is_pruned(self, step: int, figures: Mapping[str, float]) -> bool:
        """Record the objectives at a step; whether the trial is to be stopped.

        Without the first objective no trial is stopped. Raises `ClaimLost` like `check_held`.
        """


# Runs a trial in its run directory, with these values, or goes on with one that was interrupted.
# `KeyboardInterrupt`: a signal asked to stop, another worker can continue the trial. `SystemExit`:
# a process of the trial was killed; the same. Any other exception says why the trial failed.
TrialRunner = Callable[[RunDir, Values, TrialMonitor], TrialOutcome]


class Subject(Protocol):
    """What is searched.

    Attributes:
        name: of the study in its database.
        name_key: the config key or option that sets it.
        folder: where the study is written, unless a launcher gives a folder.
        seed: all values follow from it and from the earlier trials.
        options: the keys of STUDY.
        steps: how many steps a trial reports; 0 where it is not known.
        devices: GPUs of a trial, where there are any.
        processes: that train a trial together.
    """

    name: str
    name_key: str
    folder: Path
    seed: int
    options: StudyKeys
    space: tuple[Parameter, ...]
    criteria: Criteria
    steps: int
    devices: int
    processes: int

    def identity(self) -> dict[str, Any]:
        """What decides the trials. A study is refused where this differs from its own."""

    def data_digest(self) -> str:
        """What decides the trials, too, but is known only once the data have been packed."""

    def save(self, run: RunDir) -> None:
        """Write what workers read into the study's run. Raises `UserError` for missing data."""

    def runner(self, run: RunDir) -> TrialRunner:
        """What runs the trials of the study in `run`. Raises `UserError` where it cannot here."""

    def tree_in(self, file: Path) -> Mapping[str, Any]:
        """The config in a file. Raises `UserError` where it is none."""

    def publish(self, study: RunDir, name: str, values: Values) -> None:
        """Write `<name>.yaml`, the config with the best values, and do what STUDY.THEN says."""
