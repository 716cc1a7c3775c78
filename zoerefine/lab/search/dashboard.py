"""The dashboard of a study: optuna-dashboard on its database, TensorBoard on its folder.

Both are served by threads of this process, so nothing keeps running when it ends or is killed
(the program that reads TensorBoard's files ends when its standard input is closed).
"""

import logging
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory

import tensorboard_data_server
from optuna.artifacts import FileSystemArtifactStore
from optuna_dashboard import wsgi
from tensorboard.program import TensorBoard

from zoerefine.base.errors import UserError
from zoerefine.base.guarded_server import Server, listen, new_token, wait_for_answer, with_token
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.find import find_runs, is_study
from zoerefine.lab.runs.metrics import RunMetrics, read_metrics
from zoerefine.lab.runs.metrics.find_files import EVENT_FILES
from zoerefine.lab.search.study.earlier import find_study


def start_dashboard(run: RunDir, storage: str, host: str, port: int) -> tuple[str, str]:
    """Serve a study from threads of this process.

    Args:
        run: the study's run directory.
        storage: the URL of its database; empty: STUDY.STORAGE of the study's config.
        host: the address to serve on.
        port: optuna-dashboard's; TensorBoard takes the next one. 0: any free ones.

    Returns:
        The addresses of the study's page and of TensorBoard with their token, once both answer.

    Raises `UserError` where there is no such study, its database cannot be read, or a port is in
    use.
    """
    database, study_id = find_study(run, storage)
    first, second = listen(host, port), listen(host, port + 1 if port else 0)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # no line for every request
    app = wsgi(database, artifact_store=FileSystemArtifactStore(run.path / "artifacts"))
    token = new_token()
    server = Server(app, first, token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tensorboard = start_tensorboard(run.path, second, token)
    wait_for_answer(first)
    wait_for_answer(second)
    return with_token(f"{server.get_url()}dashboard/studies/{study_id}", token), tensorboard


def start_tensorboard(folder: Path, listening: socket.socket, token: str) -> str:
    """Serve the TensorBoard logs under a folder; returns the address with the token."""
    program = TensorBoard(server_class=lambda app, _flags: Server(app, listening, token))
    # Reading in Python takes half a core for 300 trials. Not every platform has the fast reader.
    fast = "true" if tensorboard_data_server.server_binary() else "false"
    program.configure(logdir=str(folder), load_fast=fast)
    return with_token(program.launch(), token)


# The dashboard of runs that belong to no study: their curves in TensorBoard.
#
# TensorBoard reads only its own files. For runs that log in another way, their metrics are
# written to such files in a temporary folder, as they are at the start of the dashboard.


def runs_without_study(folder: Path) -> list[Path]:
    """The run in a folder, or the runs below it; none where the folder is a study's."""
    return [] if is_study(folder) else find_runs(str(folder))


def start_run_dashboard(
    folder: Path, runs: Sequence[Path], host: str, port: int, stack: ExitStack
) -> str:
    """Serve the curves of runs from threads of this process; returns TensorBoard's address.

    Args:
        folder: where the runs are.
        port: TensorBoard's; 0: any free one.
        stack: removes the temporary folder when it is closed.

    Raises `UserError` where no run has a metric over steps, or the port is in use.
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
