"""MLflow: a folder of files (`mlruns`) or a SQLite database, read by MLflow's own library."""

import logging
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zoerefine.base.errors import UserError, damage, needed
from zoerefine.base.messages import one_line
from zoerefine.lab.runs.group_key import EXPERIMENT, SCRIPT
from zoerefine.lab.runs.metrics.steps import Points, as_number, as_series, record
from zoerefine.lab.runs.trackers.stores import (
    EXTRA,
    Stored,
    TrackedRun,
    environment,
    parameter_value,
)

# Without the second one, MLflow reads no folders of files.
VARIABLES = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}


def import_mlflow() -> None:
    """Import MLflow. Raises `UserError` where it is not installed."""
    with needed("reading runs of MLflow needs mlflow-skinny", EXTRA):
        import mlflow.tracking  # noqa: F401
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)


def open_client(uri: str) -> Any:
    """An `MlflowClient` of a store; to be called inside `naming`."""
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Use MLflow, and turn what it raises into a `UserError` that names a place."""
    with environment(**VARIABLES):
        import_mlflow()
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, SQLAlchemyError) as error:
            raise UserError(f"{place}: {one_line(str(error))}") from None


SQLITE_START = b"SQLite format 3\0"
TABLES = {"experiments", "runs", "params", "metrics"}
META = "meta.yaml"  # in the folder of every experiment and run
ARTIFACTS = "artifacts"
EXPERIMENT_KEY = "artifact_location"  # of an experiment's meta.yaml; a run's has other keys
PAGE = 1000  # rows that MLflow returns at once
STATES = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "killed"}
COMMIT, PARENT = "mlflow.source.git.commit", "mlflow.parentRunId"
SOURCE = "mlflow.source.name"  # the script's path on its machine


def holds_runs(path: Path) -> bool:
    """Whether a path is a database of MLflow, a folder of experiments, or an experiment."""
    if path.is_file():
        return is_database(path)
    return is_experiment(path) or any(is_experiment(meta.parent) for meta in path.glob(f"*/{META}"))


def is_experiment(path: Path) -> bool:
    """Whether a folder is an experiment's."""
    try:
        return any(
            line.startswith(EXPERIMENT_KEY)
            for line in (path / META).read_text(errors="replace").splitlines()
        )
    except OSError:
        return False


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database with MLflow's tables."""
    try:
        with open(path, "rb") as file:
            if file.read(len(SQLITE_START)) != SQLITE_START:
                return False
        with closing(connect(path)) as connection:
            rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {name for (name,) in rows} >= TABLES
    except sqlite3.Error:
        return True  # damaged: reading it says how
    except OSError:
        return False


def connect(path: Path) -> sqlite3.Connection:
    """Open a database for reading only."""
    return sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)


def read(path: Path, names: Sequence[str] | None) -> Stored:
    """The runs that were not deleted, the oldest first; a damaged one in a folder stops no other.

    MLflow writes to every store that it opens: it upgrades a database of an earlier version. So it
    opens a copy of a database, and a folder of links to the experiments.
    """
    with tempfile.TemporaryDirectory() as opened, naming(str(path)):
        if path.is_file():
            return read_database(path, Path(opened) / "copy.db", names)
        return read_folder(path, Path(opened), names)


def read_database(path: Path, copy: Path, names: Sequence[str] | None) -> Stored:
    """The runs of a SQLite database."""
    try:
        with closing(connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    except sqlite3.Error as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    client = open_client(f"sqlite:///{copy}")
    names_by_id = experiment_names(client)
    runs = pages(client.search_runs, list(names_by_id)) if names_by_id else []
    return Stored([
        tracked(client, run, f"{path}/{run.info.run_id}", names, names_by_id)
        for run in sorted(runs, key=start_order)
    ])  # fmt: skip


def read_folder(path: Path, opened: Path, names: Sequence[str] | None) -> Stored:
    """The runs of a folder of experiments, or of one experiment."""
    experiments = [path] if is_experiment(path) else filter(is_experiment, folders_in(path))
    linked = {opened / one.name: one for one in experiments}
    for link, experiment in linked.items():
        link_experiment(link, experiment)
    client = open_client(opened.as_uri())
    names_by_id = experiment_names(client)
    runs, left_out = [], {}
    for folder in (run for one in linked.values() for run in folders_in(one)):
        if not (folder / META).exists():  # `models`, `traces`, `tags` and others
            continue
        try:
            with naming(str(folder)):
                run = client.get_run(folder.name)
                if run.info.lifecycle_stage == "active":
                    found = tracked(client, run, str(folder), names, names_by_id)
                    runs.append((start_order(run), found))
        except Exception as error:  # whatever is in its files, the other runs are read
            left_out[str(folder)] = damage(error)
    return Stored([found for _, found in sorted(runs, key=itemgetter(0))], left_out)


def link_experiment(link: Path, experiment: Path) -> None:
    """Make a folder of links to an experiment's entries, in which each run has `artifacts`.

    MLflow takes a run without this folder for none. Where it was empty, a copy of files alone lacks
    it, such as what a job left in its run.
    """
    link.mkdir()
    for entry in experiment.iterdir():
        own = link / entry.name
        if not (entry / META).exists() or (entry / ARTIFACTS).exists():
            own.symlink_to(entry.resolve())
            continue
        (own / ARTIFACTS).mkdir(parents=True)
        for part in entry.iterdir():
            (own / part.name).symlink_to(part.resolve())


def experiment_names(client: Any) -> dict[str, str]:
    """The name of each experiment by its id."""
    return {one.experiment_id: one.name for one in pages(client.search_experiments)}


def start_order(run: Any) -> tuple[int, str]:
    """A key that sorts runs by their start."""
    return run.info.start_time or 0, run.info.run_id


def folders_in(path: Path) -> list[Path]:
    """The folders in a folder, without hidden ones such as `.trash`."""
    inner = sorted(path.iterdir())
    return [one for one in inner if one.is_dir() and not one.name.startswith(".")]


def pages(search: Any, *args: Any, **options: Any) -> Iterator[Any]:
    """Every row of a search that MLflow answers in pages."""
    token = None
    while True:
        page = search(*args, max_results=PAGE, page_token=token, **options)
        yield from page
        token = page.token
        if not token:
            return


def tracked(
    client: Any, run: Any, path: str, names: Sequence[str] | None, experiments: Mapping[str, str]
) -> TrackedRun:
    """A run with the series of some metrics, or of all; the experiments are names by id."""
    finals = {name: as_number(value) for name, value in run.data.metrics.items()}
    wanted = finals if names is None else [name for name in names if name in finals]
    read = {name: read_points(client, run.info.run_id, name) for name in wanted}
    series = {name: as_series(points) for name, (points, _) in read.items()}
    # Of values of one millisecond MLflow names the largest, not the last.
    finals |= {name: one.values[-1] for name, one in series.items() if one.values}
    return TrackedRun(
        path=path,
        name=run.info.run_name or "",
        state=STATES.get(run.info.status, "running"),
        settings={key: parameter_value(text) for key, text in run.data.params.items()},
        finals={name: value for name, value in finals.items() if value is not None},
        series=series,
        commit=run.data.tags.get(COMMIT, ""),
        places={
            EXPERIMENT: experiments.get(run.info.experiment_id, ""),
            SCRIPT: Path(run.data.tags.get(SOURCE, "")).name,
        },
        started=(run.info.start_time or 0) / 1000,
        parent=run.data.tags.get(PARENT, ""),
        again={name: step for name, (_, step) in read.items() if step is not None},
    )


def read_points(client: Any, run_id: str, name: str) -> tuple[Points, float | None]:
    """A metric's history, and the first step to which it goes back or of which it has two values.

    Values that were logged without steps are counted from 1.
    """
    history = client.get_metric_history(run_id, name)
    history = sorted(history, key=lambda metric: metric.timestamp)
    counted = len(history) > 1 and not any(metric.step for metric in history)
    points: Points = {}
    again = None
    for number, metric in enumerate(history, 1):
        step, value = number if counted else metric.step, as_number(metric.value)
        if value is not None and record(points, step, value, begins=False) and again is None:
            again = step
    return points, again
