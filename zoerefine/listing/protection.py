"""Which runs are never removed, and why."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from zoerefine.analysis.find_runs import named_paths
from zoerefine.launch.executor.slurm_submission import is_in_slurm
from zoerefine.listing.run_row import DAMAGED, RUNNING, RunRow
from zoerefine.listing.run_users import RunUsers, is_study
from zoerefine.locks import is_locked
from zoerefine.run_dir import RunDir


class Protection:
    """Why runs may not be removed. An empty reason allows it."""

    def __init__(self, patterns: Sequence[str], rows: Sequence[RunRow]) -> None:
        """Find what refers to runs.

        Args:
            patterns: the folders of runs, as the user named them.
            rows: all runs in them.
        """
        self.roots = {root for pattern in patterns for root in roots_of(pattern)}
        paths = [row.path for row in rows]
        self.users = RunUsers({runs_root(Path(path)) for path in paths}, paths)

    def of_place(self, path: Path) -> str:
        """Why a run may not be removed for where it is."""
        if os.path.realpath(path) != str(path) or not any(map(path.is_relative_to, self.roots)):
            return "a link leads to it: name the path without links"
        return ""

    def of_run(self, row: RunRow) -> str:
        """Why a run may not be removed for what it is. Looks at its files of now."""
        path = Path(row.path)
        if row.state == DAMAGED:
            return f"it cannot be read: {row.reason}"
        if row.state == RUNNING:
            return "it is running"
        if any(map(is_locked, path.glob(f"node-*/{RunDir(path).lock_file.name}"))):
            return "another node of its job is running"
        if is_in_slurm(path):
            return "a job in Slurm will go on with it"
        if row.tags:
            return "it is tagged"
        if study_of(path):
            return "it belongs to a study"
        if has_files(RunDir(path).engine):
            return "an engine bundle was exported from it"
        return self.users.of(path)

    def now(self, row: RunRow) -> str:
        """Why a run would stay."""
        if reason := self.of_place(Path(row.path)) or self.of_run(row):
            return reason
        return "a process is using it" if is_locked(RunDir(Path(row.path)).lock_file) else ""


def roots_of(pattern: str) -> Iterator[str]:
    """The folders below which a removal stays: those that were named without any link."""
    for path in named_paths(pattern):
        if os.path.realpath(path) == os.path.abspath(path):
            yield os.path.abspath(path)


def runs_root(path: Path) -> Path:
    """The folder `runs` of runs/NAME/ID, also for a run of a study there."""
    study = study_of(path)
    return (study or path).parent.parent


def study_of(path: Path) -> Path | None:
    """The folder of the study that a run belongs to or is; None for another run."""
    places = [path, path.parent] + ([path.parent.parent] if path.parent.name == "trials" else [])
    return next((place for place in places if is_study(str(place))), None)


def has_files(folder: Path) -> bool:
    """Whether there is something in a folder, or it cannot be read."""
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True
