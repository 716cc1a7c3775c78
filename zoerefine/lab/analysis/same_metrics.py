"""Runs that should differ and do not: their script does not read the seed, or what is searched."""

from collections.abc import Sequence
from typing import Any

from zoerefine.base.identity import SEED
from zoerefine.lab.launch.record.results import is_time
from zoerefine.lab.runs.record import Run, differing_keys


def have_same_metrics(runs: Sequence[Run]) -> bool:
    """Whether several runs of scripts have another seed or other settings each, and yet every
    value is the same.
    """
    if len(runs) < 2 or not all(run.is_foreign for run in runs):
        return False
    asked = {repr((run.seed, sorted(run.settings.items()))) for run in runs}
    found = {repr(sorted(results_of(run).items())) for run in runs}
    return len(asked) == len(runs) and len(found) == 1 and bool(results_of(runs[0]))


def results_of(run: Run) -> dict[str, Any]:
    """The final values of a run without times, and the curves of what is compared."""
    finals = {name: value for name, value in run.finals.items() if not is_time(name)}
    return finals | {f"{name} over steps": one.refined for name, one in run.curves.items()}


def same_metrics_note(runs: Sequence[Run]) -> str:
    """A question to the reader of a report; empty where the runs differ."""
    if not have_same_metrics(runs):
        return ""
    keys = differing_keys(list(runs)) or [str(runs[0].provenance.get("seed_key", SEED)).lstrip("+")]
    return (
        f"{len(runs)} runs have exactly the same metrics; does the script read "
        f"{' and '.join(keys)}?"
    )
