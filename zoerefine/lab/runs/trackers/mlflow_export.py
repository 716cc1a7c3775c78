"""Writes runs to MLflow: a folder, a SQLite database or a server."""

import os
import posixpath
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan, nan
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import unquote, urlsplit

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_json
from zoerefine.base.messages import counted
from zoerefine.base.progress import track
from zoerefine.lab.runs.collect import find_sources
from zoerefine.lab.runs.metrics import RunMetrics
from zoerefine.lab.runs.record import Collection, Run
from zoerefine.lab.runs.trackers.mlflow import (
    COMMIT,
    SQLITE_START,
    STATES,
    is_database,
    naming,
    open_client,
    pages,
)
from zoerefine.lab.runs.trackers.stores import TrackedRun

EXPERIMENT = "zoerefine"
PATH, DIGEST, DATA = "zoerefine.path", "zoerefine.digest", "zoerefine.data_digest"
SQLITE = "sqlite:///"
SERVERS = ("http://", "https://")
DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
# Limits of MLflow.
MOST_METRICS, MOST_PARAMETERS = 1000, 100  # in a call
LONGEST_NAME, LONGEST_PARAMETER = 250, 6000  # characters
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
NEWEST_FIRST = "attributes.start_time DESC"

PointsByName = dict[str, list[tuple[int, float]]]
KnownPoints = dict[str, set[tuple[int, str]]]  # values as texts


@dataclass
class MlflowTarget:
    """The experiment that runs are written to.

    Attributes:
        by_digest, by_path: the runs that are there; of several at a path the newest.
        added, continued, known: how many runs were written, written further, and left as they are.
    """

    client: Any
    experiment_id: str
    by_digest: dict[str, Any] = field(default_factory=dict)
    by_path: dict[str, Any] = field(default_factory=dict)
    added: int = 0
    continued: int = 0
    known: int = 0

    def write(self, run: TrackedRun, data_digest: str = "") -> None:
        """Write a run, or what of it is not there yet.

        The digest is written last: a run without one was interrupted, and is continued. A run that
        was made again at the same path is a new one.
        """
        digest = digest_json([asdict(run), data_digest])
        if digest in self.by_digest:
            self.known += 1
            return
        tags = {PATH: run.path, COMMIT: run.commit, DATA: data_digest}
        tags = {key: value for key, value in tags.items() if value}
        there = self.by_path.get(run.path)
        known = self._known_points(there) if there else {}
        parameters, points = parameters_of(run), points_of(run, known)
        if there and goes_on(there.data, tags, parameters) and has_points(points, known):
            self.continued += 1
        else:
            known, points = {}, points_of(run)
            there = self.client.create_run(self.experiment_id, tags=tags, run_name=run.name or None)
            self.added += 1
        self._write_values(there, parameters, points, known)
        self._write_state(there.info.run_id, run.state)
        for key, value in (tags | {DIGEST: digest}).items():
            if there.data.tags.get(key) != value:
                self.client.set_tag(there.info.run_id, key, value)

    def _write_values(
        self, there: Any, parameters: Mapping[str, str], points: PointsByName, known: KnownPoints
    ) -> None:
        """Write the parameters and values that MLflow's run does not have."""
        from mlflow.entities import Metric, Param

        run_id, now_ms = there.info.run_id, int(time.time() * 1000)
        new = [Param(k, v) for k, v in parameters.items() if k not in there.data.params]
        for part in parts_of(new, MOST_PARAMETERS):
            self.client.log_batch(run_id, params=part)
        metrics = []
        for name, values in points.items():
            # Of a final value that changed and changed back, the latest one is another.
            latest = text_of(there.data.metrics.get(name, nan))
            metrics += [
                Metric(name, value, now_ms, step)
                for step, value in values
                if (step, text_of(value)) not in known.get(name, ())
                or (step == values[-1][0] and text_of(value) != latest)
            ]
        for part in parts_of(metrics, MOST_METRICS):
            self.client.log_batch(run_id, metrics=part)

    def _known_points(self, there: Any) -> KnownPoints:
        """Steps and values, as texts, of every metric of MLflow's run."""
        return {
            name: {
                (metric.step, text_of(metric.value))
                for metric in self.client.get_metric_history(there.info.run_id, name)
            }
            for name in there.data.metrics
        }

    def _write_state(self, run_id: str, state: str) -> None:
        names = {ours: theirs for theirs, ours in STATES.items()}
        if state in names:
            self.client.set_terminated(run_id, names[state])
        else:
            self.client.update_run(run_id, "RUNNING")


def write_runs(uri: str, runs: Iterable[tuple[TrackedRun, str]]) -> MlflowTarget:
    """Write runs, each with the digest of its data; returns how many were new.

    Raises `UserError` where MLflow is not installed, or the store or server cannot be used.
    """
    os.environ.setdefault(RETRIES, "2")
    with naming(f"--to-mlflow {uri}"):
        client = open_client(store_uri(uri))
        found = client.get_experiment_by_name(EXPERIMENT)
        experiment_id = found.experiment_id if found else client.create_experiment(EXPERIMENT)
        target = MlflowTarget(client, experiment_id)
        for there in pages(client.search_runs, [experiment_id], order_by=[NEWEST_FIRST]):
            tags = there.data.tags
            target.by_digest[tags.get(DIGEST, "")] = there
            target.by_path.setdefault(tags.get(PATH, ""), there)
        for run, data_digest in runs:
            target.write(run, data_digest)
    return target


def check_uri(uri: str) -> None:
    """Raises `UserError` for an address that is no store of MLflow, or that holds a password."""
    if uri.startswith(SERVERS):
        if "@" in uri:
            raise UserError(
                "--to-mlflow: the address holds a password, which others could read; remove it, "
                "and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )
    elif "://" in uri and not uri.startswith((SQLITE, "file:///")):
        raise UserError(
            "--to-mlflow takes a folder, a SQLite database (sqlite:///FILE) or a server (http://, "
            "https://); this address is none of them"
        )
    elif not uri:
        raise UserError("--to-mlflow is empty: give a folder, a database or a server")
    check_place(uri)


def check_place(uri: str) -> None:
    """Raises `UserError` where a folder or database cannot be written: MLflow tries for an hour."""
    if uri.startswith(SERVERS):
        return
    address = store_uri(uri)
    try:
        if not address.startswith(SQLITE):
            folder = Path(unquote(urlsplit(address).path))
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):
                return
        path = Path(address.removeprefix(SQLITE))
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        with open(path, "ab+") as file:
            file.seek(0)
            start = file.read(len(SQLITE_START))
        if is_new:
            path.unlink()
    except OSError as error:
        raise UserError(
            f"--to-mlflow {uri}: it cannot be written: {error.strerror}; give another place"
        ) from None
    if start not in (b"", SQLITE_START):
        raise UserError(f"--to-mlflow {uri}: this file is no SQLite database; give another one")


def store_uri(uri: str) -> str:
    """The address of a store as MLflow takes it, of a path, too."""
    if "://" in uri:
        return uri
    path = Path(uri).resolve()
    is_file = path.suffix in DATABASE_SUFFIXES or (path.is_file() and is_database(path))
    return f"{SQLITE}{path}" if is_file else path.as_uri()


def parameters_of(run: TrackedRun) -> dict[str, str]:
    """The settings as MLflow's texts; longer ones are cut off."""
    names = store_names(list(run.settings))
    return {names[k]: str(value)[:LONGEST_PARAMETER] for k, value in run.settings.items()}


def goes_on(there: Any, tags: Mapping[str, str], parameters: Mapping[str, str]) -> bool:
    """Whether MLflow's run has the parameters and data of a run, as far as it has any."""
    same_data = there.tags.get(DATA) in (None, tags.get(DATA))
    return same_data and all(parameters.get(k) == v for k, v in there.params.items())


def has_points(points: PointsByName, known: KnownPoints) -> bool:
    """Whether a run has every point that MLflow knows; a value without steps may have changed."""
    for name, there in known.items():
        ours = {(step, text_of(value)) for step, value in points.get(name, ())}
        if not ours or not (there <= ours or {step for step, _ in there | ours} == {0}):
            return False
    return True


def points_of(run: TrackedRun, known: Container[str] = ()) -> PointsByName:
    """Steps and values of every metric; where a step is not whole, the values are counted from 1.

    MLflow shows the last value of a metric. A final value that is another one, such as that of
    the best checkpoint, is a metric of its own, `final.NAME`.

    Args:
        known: names that MLflow's run has: a `final.NAME` among them stays.
    """
    points = {}
    for name, one in run.series.items():
        whole = all(step == int(step) for step in one.steps)
        steps = map(int, one.steps) if whole else range(1, len(one.steps) + 1)
        points[name] = list(zip(steps, one.values, strict=True))
    for name, value in run.finals.items():
        final = f"final.{name}"
        if name not in points:
            points[name] = [(0, value)]
        elif text_of(points[name][-1][1]) != text_of(value) or final in known:
            points[final] = [(0, value)]
    names = store_names(list(points))
    return {names[name]: values for name, values in points.items()}


def store_names(names: Sequence[str]) -> dict[str, str]:
    """Each name as MLflow takes it: other characters are replaced, equal names are numbered."""
    taken: dict[str, str] = {}
    for name in names:
        clean = posixpath.normpath(re.sub(r"[^\w.\- :/]", "_", name).lstrip("/."))
        clean = clean.lstrip("/.")[: LONGEST_NAME - 10] or "_"
        number = sum(1 for other in taken.values() if re.sub(r"_\d+$", "", other) == clean)
        taken[name] = f"{clean}_{number + 1}" if clean in taken.values() else clean
    return taken


def parts_of(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    """Consecutive parts of a list."""
    return (items[start : start + most] for start in range(0, len(items), most))


def text_of(value: float) -> str:
    """A number as text; all NaN are equal, and a database may keep -0.0 as 0.0."""
    return "nan" if isnan(value) else repr(float(value) + 0.0)


SEED_KEY = "seed"


def export_runs(patterns: Sequence[str], collection: Collection, uri: str) -> str:
    """Write the runs that were analysed; returns how many, as a line.

    A run that is there is not written again; one that went on since is continued, and one that was
    made again at the same path is added.

    Raises `UserError` where MLflow is not installed, or the store or server cannot be used.
    """
    runs = tracked_runs(patterns, collection)
    done = write_runs(uri, track(runs, len(collection.runs), "writing to MLflow", "run"))
    line = f"{counted(done.added, 'run')} added to {uri}"
    line += f", {done.continued} continued" if done.continued else ""
    return line + (f", {done.known} there already" if done.known else "")


def tracked_runs(
    patterns: Sequence[str], collection: Collection
) -> Iterator[tuple[TrackedRun, str]]:
    """Each run with all its metrics, and the digest of its data."""
    chosen = {run.path: run for run in collection.runs}
    for pattern in patterns:
        for source in find_sources(pattern):
            for path, metrics in source.metrics().items():
                if run := chosen.pop(path, None):
                    yield as_tracked(run, metrics), str(run.results.get("data_digest") or "")


def as_tracked(run: Run, metrics: RunMetrics) -> TrackedRun:
    """A run as a tracker records it."""
    return TrackedRun(
        path=run.path,
        name=run.name,
        state=run.state,
        settings=run.settings | ({} if run.seed is None else {SEED_KEY: run.seed}),
        finals=metrics.final,
        series=metrics.series,
        commit="" if run.commit == "unknown" else run.commit,
    )
