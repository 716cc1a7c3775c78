"""TensorBoard: a folder with event files is a run, and its subfolders are parts of it."""

import re
from collections.abc import Sequence
from pathlib import Path

from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.metrics.find_files import EVENT_FILES
from zoerefine.lab.runs.metrics.run_logs import RunLogs
from zoerefine.lab.runs.trackers.stores import Stored, TrackedRun

TIME = re.compile(r"\.tfevents\.(\d{1,15})\.")  # seconds
# Keras and others write a run's event files to folders of these names only.
PARTS = ("train", "training", "val", "valid", "validation", "test", "eval")


def holds_runs(path: Path) -> bool:
    """Whether a folder, or a part of a run in it, has event files."""
    return any(
        next(folder.glob(EVENT_FILES), None) for folder in [path, *map(path.joinpath, PARTS)]
    )


def read(path: Path, names: Sequence[str] | None) -> Stored:
    """The run; all its series are read, since its files hold them together.

    Event files do not say whether the job ended: the run counts as finished.
    """
    logs = RunLogs(RunDir(path))
    logs.update()
    metrics = logs.metrics()
    run = TrackedRun(
        path=str(path),
        name="",
        state="finished",
        settings=dict(metrics.hyperparameters),
        finals=metrics.final,
        series=metrics.series,
        faults=list(metrics.faults),
        started=start_of(path),
    )
    return Stored([run])


def start_of(path: Path) -> float:
    """When the first event file was begun, by its name; 0 where no name has a time."""
    names = (file.name for file in path.rglob(EVENT_FILES))
    return float(min((int(found[1]) for name in names if (found := TIME.search(name))), default=0))
