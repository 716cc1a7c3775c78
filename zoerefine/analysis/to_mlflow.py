"""Writes the runs of an analysis to MLflow: `zoerefine analyze --to-mlflow`."""

from collections.abc import Iterator, Sequence

from zoerefine.analysis.collect import Collection, find_sources
from zoerefine.analysis.run_record import Run
from zoerefine.progress import track
from zoerefine.run_metrics import RunMetrics
from zoerefine.trackers.mlflow_export import write_runs
from zoerefine.trackers.tracked_run import TrackedRun
from zoerefine.wording import counted

SEED_KEY = "seed"


def export_runs(patterns: Sequence[str], collection: Collection, uri: str) -> str:
    """Write the runs that were analysed; returns how many, as a line.

    A run that is there is not written again; one that went on since is continued.

    Raises:
        UserError: MLflow is not installed, or the store or server cannot be used.
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
        settings=run.settings | {SEED_KEY: run.seed},
        finals=metrics.final,
        series=metrics.series,
        commit="" if run.commit == "unknown" else run.commit,
    )
