"""What the sections of the report page show: tables, learning curves, settings, commands."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.lab.analysis.group_names import distinct_texts, setting_of, shortened
from zoerefine.lab.analysis.groups import Measure, RunGroup
from zoerefine.lab.analysis.pictures.settings import SHOWN_SETTINGS, columns_by_score, share_of
from zoerefine.lab.analysis.pictures.style import is_wide
from zoerefine.lab.analysis.report.tables import (
    Rows,
    RunCurve,
    metric_column,
    run_rows,
    setting_columns,
)
from zoerefine.lab.analysis.statistics import importance
from zoerefine.lab.runs.find import RUN_FILES, study_of
from zoerefine.lab.runs.metrics.find_files import EVENT_FILES
from zoerefine.lab.runs.record import Collection, Curve, Run

CURVES_SHOWN = 200
POINTS_SHOWN = 250  # of a curve
DIGITS = 7  # of its values
ROWS_SHOWN = 1000  # of the table of runs
POINTS_OF_SETTINGS = 1000  # runs in the charts of settings
COMMANDS_SHOWN = 10


def as_table(
    table: Rows, shown: Sequence[str] = (), compared: int | None = None, always: Sequence[str] = ()
) -> dict[str, Any]:
    """A table for the page, without the columns that are empty in every row.

    Columns whose values are all equal are hidden at first and listed in `same`.

    Args:
        shown: the columns that are shown at first; empty: all.
        compared: how many rows decide whether values are equal; None: all.
        always: columns that are shown even if their values are all equal, as is the first one.
    """
    header, rows = table
    used = [c for c in range(len(header)) if any(row[c] not in (None, "") for row in rows)]
    deciding = rows[:compared]
    same = [
        [header[c], deciding[0][c]]
        for c in used[1:]
        if len(deciding) > 1
        and header[c] not in always
        and all(row[c] == deciding[0][c] for row in deciding)
    ]
    hidden = {name for name, _ in same}
    names = [header[c] for c in used]
    return {
        "header": names,
        "rows": [[row[c] for c in used] for row in rows],
        "shown": [name for name in names if name not in hidden and (not shown or name in shown)],
        "same": [pair for pair in same if pair[1] not in (None, "")],
    }


def runs_table(collection: Collection, groups: Sequence[RunGroup], measure: Measure) -> Rows:
    """The rows of runs.csv, the best run first, and its score before the other metrics."""
    score = score_column(collection.runs, measure)
    header, rows = reordered(run_rows(collection, groups), ["run", "group", "seed", score])
    at = header.index(score)
    read = rows[: len(collection.runs)]
    ranked = sorted(read, key=lambda row: (row[at] is None, measure.sign * (row[at] or 0.0)))
    return header, (ranked + rows[len(read) :])[:ROWS_SHOWN]


def reordered(table: Rows, first: Sequence[str]) -> Rows:
    """A table with these columns first."""
    header, rows = table
    order = [header.index(name) for name in first]
    order += [c for c in range(len(header)) if header[c] not in first]
    return [header[c] for c in order], [[row[c] for c in order] for row in rows]


def runs_shown_first(collection: Collection, measure: Measure) -> list[str]:
    """The columns of the table of runs that are shown at first."""
    return [
        *("run", "group", "seed", score_column(collection.runs, measure)),
        *("state", "pruned", "commit"),
        *setting_columns(collection.runs).values(),
        *("parameters", "latency_ms", "note"),
    ]


def score_column(runs: list[Run], measure: Measure) -> str:
    """The column of runs.csv with the compared values."""
    if measure.metric:
        return metric_column(measure.metric, setting_columns(runs))
    return f"{measure.split}/refined/{SELECTION_METRIC}"


def runs_caption(rows: int) -> str:
    """What the table of runs holds."""
    if rows > ROWS_SHOWN:
        return f"The best {ROWS_SHOWN} of {rows} runs, see runs.csv; a heading sorts by its column"
    return "All runs, the best first; a heading sorts by its column"


def shown_curves(groups: Sequence[RunGroup], measure: Measure) -> list[RunCurve]:
    """The runs' curves, those of the best groups first, at most CURVES_SHOWN."""
    found = (
        RunCurve(group.label, run.name, run.seed, thinned(curve))
        for group in groups
        for run in group.runs
        if (curve := measure.curve(run))
    )
    return list(islice(found, CURVES_SHOWN))


def thinned(curve: Curve) -> Curve:
    """A curve with at most POINTS_SHOWN points of DIGITS digits, the last one among them."""
    every = -(-len(curve.epochs) // POINTS_SHOWN)
    kept = slice((len(curve.epochs) - 1) % every, None, every)
    values = [float(f"{value:.{DIGITS}g}") for value in curve.refined[kept]]
    return Curve(curve.epochs[kept], values, curve.pseudo)


def curve_data(curves: Sequence[RunCurve], colors: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every curve with its group's name, of several with the seed or run, and its colour."""
    alone = [curve.group for curve in curves]
    each = [one.run if one.seed is None else f"seed {one.seed}" for one in curves]
    return [
        {
            "name": one.group if alone.count(one.group) == 1 else f"{one.group}, {name}",
            "group": one.group,
            "color": colors[one.group],
            "epochs": one.curve.epochs,
            "values": one.curve.refined,
            "pseudo": one.curve.pseudo,
        }
        for one, name in zip(curves, each, strict=True)
    ]


def setting_data(
    groups: Sequence[RunGroup],
    measure: Measure,
    shares: Mapping[str, importance.Share],
    colors: Mapping[str, str],
) -> dict[str, list[dict[str, Any]]]:
    """The settings that differ, the most important first, and the runs' scores.

    A setting has numbers, or the names of its values and for each run the index of one.
    """
    runs = [run for group in groups for run in group.runs]
    keys = sorted(importance.compared_keys(runs, measure), key=lambda key: -share_of(shares, key))
    labels = {run.path: group.label for group in groups for run in group.runs}
    scored = importance.scored_runs(runs, measure)[:POINTS_OF_SETTINGS]
    scores = [measure.score(run) or 0.0 for run in scored]
    settings = []
    for key in keys[:SHOWN_SETTINGS]:
        values = [setting_of(run, key) for run in scored]
        share = str(shares[key]) if key in shares else ""
        one: dict[str, Any] = {"key": shortened(key, 60), "share": share}
        found = importance.numbers(values)
        if found is not None:
            one |= {"values": found, "log": is_wide(found)}
        else:
            costs = [measure.sign * score for score in scores]
            columns, names = columns_by_score(distinct_texts(values), np.array(costs, np.float64))
            one |= {"values": columns, "names": names}
        settings.append(one)
    points = [
        {"name": run.name, "score": score, "color": colors[labels[run.path]]}
        for run, score in zip(scored, scores, strict=True)
    ]
    return {"settings": settings if len(scored) > 1 else [], "scores": points}


def settings_note(shares: Mapping[str, importance.Share], runs: int, measure: Measure) -> str:
    """What the importances beside the settings are."""
    if not shares:
        return (
            f"No importances: fewer than {importance.ENOUGH_FOR_IMPORTANCE} runs with a final "
            "metric, or no setting differs."
        )
    parts = [
        f"Importance for {measure.label}: how much a setting decides whether a run is in the "
        "better half of the runs (PED-ANOVA)."
    ]
    if any(share.low is not None for share in shares.values()):
        parts.append("In brackets: the range of 80% of random halves of the runs.")
    if runs < importance.ENOUGH_TO_BE_SURE:
        parts.append(f"A rough estimate: only {runs} runs.")
    if runs > POINTS_OF_SETTINGS:
        parts.append(f"Points: the runs of the best groups, {POINTS_OF_SETTINGS} of {runs}.")
    return " ".join(parts)


def favour(measure: Measure) -> str:
    """What the sign of a difference means."""
    sign = "positive" if measure.maximize else "negative"
    return f"A {sign} difference (of the means over seeds) is in favour of the first group."


def commands(paths: Sequence[str]) -> list[dict[str, str]]:
    """The commands that show the curves of these runs, and the trials of their studies.

    Runs in the database of a tracker have none: that tracker shows them.
    """
    found = dict.fromkeys(command for path in paths if (command := command_for(Path(path))))
    shown = [{"what": what, "command": command} for what, command in list(found)[:COMMANDS_SHOWN]]
    if more := len(found) - len(shown):
        shown.append({"what": f"{more} more folders", "command": "zoerefine dashboard FOLDER"})
    return shown


def command_for(path: Path) -> tuple[str, str] | None:
    """What shows a run, and its command; None where there is none."""
    if study := study_of(path):
        return "Study and TensorBoard", f"zoerefine dashboard {shlex.quote(str(study))}"
    if any((path / name).exists() for name in RUN_FILES):
        return "TensorBoard", f"zoerefine dashboard {shlex.quote(str(path.parent))}"
    if next(path.rglob(EVENT_FILES), None):
        return "TensorBoard", f"tensorboard --logdir {shlex.quote(str(path.parent))}"
    return None
