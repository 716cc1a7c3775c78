"""The dashboard of runs that belong to no study: their curves in TensorBoard.

TensorBoard reads only its own files. For runs that log in another way, their metrics are written
to such files in a temporary folder, as they are at the start of the dashboard.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory

from zoerefine.analysis.find_runs import find_runs
from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir
from zoerefine.run_metrics import RunMetrics, read_metrics
from zoerefine.run_metrics.find_files import EVENT_FILES
from zoerefine.searching.dashboard import listen, start_tensorboard, wait_for_answer
from zoerefine.searching.guarded import new_token


def runs_without_study(folder: Path) -> list[Path]:
    """The run in a folder, or the runs below it; none where the folder is a study's."""
    if (folder / "trials").is_dir() or (folder / "study.db").exists():
        return []
    return find_runs(str(folder))


def start_run_dashboard(
    folder: Path, runs: Sequence[Path], host: str, port: int, stack: ExitStack
) -> str:
    """Serve the curves of runs from threads of this process; returns TensorBoard's address.

    Args:
        folder: where the runs are.
        port: TensorBoard's; 0: any free one.
        stack: removes the temporary folder when it is closed.

    Raises:
        UserError: no run has a metric over steps, or the port is in use.
    """
    logs = folder
    if not any(next(run.rglob(EVENT_FILES), None) for run in runs):
        logs = Path(stack.enter_context(TemporaryDirectory(prefix="zoerefine-dashboard-")))
        if not sum(write_events(run, logs / os.path.relpath(run, folder)) for run in runs):
            raise UserError(f"{folder} has no metrics over steps that could be drawn")
    listening = listen(host, port)
    address = start_tensorboard(logs, listening, new_token())
    wait_for_answer(listening)
    return address


def write_events(run: Path, folder: Path) -> int:
    """Write a run's metrics to an event file; returns how many metrics there were."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    metrics: RunMetrics = read_metrics(RunDir(run))
    if not metrics.series:
        return 0
    writer = EventFileWriter(str(folder))
    for name, series in metrics.series.items():
        for step, number in zip(series.steps, series.values, strict=True):
            if not isnan(number):
                value = Summary.Value(tag=name, simple_value=number)
                writer.add_event(Event(step=round(step), summary=Summary(value=[value])))
    writer.close()
    return len(metrics.series)
