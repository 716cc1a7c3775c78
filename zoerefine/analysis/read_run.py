"""Reads any run: of our own training, or of another repository's script."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path

from zoerefine.analysis.documents import read_document
from zoerefine.analysis.foreign_run import is_foreign, read_curves, read_foreign_run
from zoerefine.analysis.run_record import Run, read_own_run
from zoerefine.run_dir import RunDir
from zoerefine.run_metrics import RunMetrics, Series, read_metrics
from zoerefine.selection_metric import SELECTION_METRIC

VALIDATION = "val."
SELECTED_BY = f"{VALIDATION}refined.{SELECTION_METRIC}"


def read_run(folder: Path, names: Sequence[str] = ()) -> Run:
    """Read one run directory.

    Args:
        names: metrics whose curves are kept. A run of another repository's script has the final
            values of all its metrics, one of our own only of these.

    Raises:
        UserError, OSError: a document is damaged.
    """
    run = RunDir(folder)
    recorded = read_document(run, run.provenance_file)
    if is_foreign(run, recorded):
        return read_foreign_run(run, recorded, names)
    own = read_own_run(run, recorded)
    if not names:
        return own
    metrics = read_metrics(run)
    known = metrics.final | ({} if own.results else best_values(metrics))
    finals = {name: known[name] for name in names if name in known}
    curves = read_curves(metrics.series, names)
    return replace(own, finals=finals, curves=curves, faults=list(metrics.faults))


def best_values(metrics: RunMetrics) -> dict[str, float]:
    """Every validation metric at the best checkpoint so far, of a run without results.json."""
    scores = metrics.series.get(SELECTED_BY, Series([], []))
    pairs = zip(scores.values, scores.steps, strict=True)
    finite = [(value, step) for value, step in pairs if isfinite(value)]
    if not finite:
        return {}
    _, best = min(finite)
    return {
        name: one.values[one.steps.index(best)]
        for name, one in metrics.series.items()
        if name.startswith(VALIDATION) and best in one.steps
    }
