"""The numbers behind the graph and the page, a CSV file for each table."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from zoerefine.base import registries
from zoerefine.base.files.atomic import replacing
from zoerefine.lab.analysis.groups import RunGroup
from zoerefine.lab.analysis.measure import Measure
from zoerefine.lab.analysis.report.frames import ExampleFrame
from zoerefine.lab.analysis.statistics.comparisons import Difference, common_scenes, scene_scores
from zoerefine.lab.analysis.statistics.importance import Share
from zoerefine.lab.runs.collect import Collection
from zoerefine.lab.runs.metrics.series import parse_number
from zoerefine.lab.runs.record import Curve, Run, differing_keys, finite_number

METRICS = tuple(
    (split, which, name)
    for which in ("refined", "pseudo")
    for split in ("val", "test")
    for name in registries.METRICS
)
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # of a cell, in spreadsheets
BOUNDS = ("interval", "paired")  # fields of a `Difference` that are two numbers


def run_rows(
    collection: Collection, groups: Sequence[RunGroup]
) -> tuple[list[str], list[list[Any]]]:
    """Header, and per run its settings and metrics, or the reason why it was left out."""
    keys = differing_keys(collection.runs)
    names = list(dict.fromkeys(name for run in collection.runs for name in run.finals))
    metrics = () if all(run.is_foreign for run in collection.runs) else METRICS
    header = [
        "run", "state", "pruned", "group", "seed", "commit", *keys, *names,
        *("/".join(metric) for metric in metrics),
        "parameters", "images_per_s", "wait_share", "latency_ms",
        "repository", "data_name", "data_digest", "path", "note",
    ]  # fmt: skip
    labels = {run.path: group.label for group in groups for run in group.runs}
    rows = []
    for run in collection.runs:
        cost = [run.result(key) for key in ("parameters", "images_per_s", "wait_share")]
        rows.append([
            run.name, run.state, run.pruned, labels[run.path], run.seed, run.commit,
            *(cell(run.settings.get(key)) for key in keys),
            *(run.finals.get(name) for name in names),
            *(run.metric(*metric) for metric in metrics),
            *cost, run.latency_ms, *origin(run), run.path, "; ".join(run.faults),
        ])  # fmt: skip
    for path, reason in collection.left_out.items():
        name = Path(path).name
        rows.append([name, "left out", *[None] * (len(header) - 4), path, reason])
    return header, rows


def origin(run: Run) -> list[Any]:
    """Repository, data and the digest of the data of a run; None where it is not known."""
    facts = [run.provenance.get("repository"), *map(run.results.get, ("data", "data_digest"))]
    return [cell(fact) for fact in facts]


def cell(value: Any) -> Any:
    """A setting as a table holds it: lists and mappings as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def group_rows(groups: Sequence[RunGroup], measure: Measure) -> tuple[list[str], list[list[Any]]]:
    """Header, and per group the mean over seeds with its interval, and the pseudo depth's mean."""
    header = ["group", "runs", "scored", "mean", "low", "high", "pseudo"]
    rows = [
        [g.label, len(g.runs), len(g.scores), g.mean if g.scored else None,
         *(g.interval or (None, None)), pseudo_mean(g, measure)]
        for g in groups
    ]  # fmt: skip
    return header, rows


def pseudo_mean(group: RunGroup, measure: Measure) -> float | None:
    """The mean score of the pseudo depth over a group's scored runs; None where it is unknown."""
    known = [value for run in group.scored if (value := measure.pseudo(run)) is not None]
    return sum(known) / len(known) if known else None


def difference_rows(differences: Sequence[Difference]) -> tuple[list[str], list[list[Any]]]:
    """Header, and a row per comparison."""
    header = []
    for f in fields(Difference):
        header += [f"{f.name}_low", f"{f.name}_high"] if f.name in BOUNDS else [f.name]
    rows = []
    for difference in differences:
        row: list[Any] = []
        for name, value in asdict(difference).items():
            row += (value or (None, None)) if name in BOUNDS else [value]
        rows.append(row)
    return header, rows


def scene_rows(groups: Sequence[RunGroup], measure: Measure) -> tuple[list[str], list[list[Any]]]:
    """Header, and per scene the pseudo depth's mean score and each group's."""
    scored = [group for group in groups if group.scored]
    runs = [run for group in scored for run in group.scored]
    scenes = common_scenes(runs, measure)
    pseudo = [measure.scenes(run, "pseudo") for run in runs]
    rows = []
    for column, scene in enumerate(scenes):
        before = [values[scene] for values in pseudo if scene in values]
        means = [scene_scores(group.scored, measure, scenes)[:, column].mean() for group in scored]
        rows.append([scene, sum(before) / max(1, len(before)), *map(float, means)])
    return ["scene", "pseudo", *(group.label for group in scored)], rows


@dataclass(frozen=True)
class RunCurve:
    """A run's learning curve as the page shows it."""

    group: str
    run: str
    seed: int | None
    curve: Curve


def curve_rows(curves: Sequence[RunCurve]) -> tuple[list[str], list[list[Any]]]:
    """Header, and a row per point of each curve; `pseudo` is the pseudo depth's value."""
    rows = [
        [one.group, one.run, one.seed, step, value, finite_number(one.curve.pseudo)]
        for one in curves
        for step, value in zip(one.curve.epochs, one.curve.refined, strict=True)
    ]
    return ["group", "run", "seed", "step", "value", "pseudo"], rows


def frame_rows(frames: Sequence[ExampleFrame]) -> tuple[list[str], list[list[Any]]]:
    """Header, and a row per depth of each example frame."""
    rows = [
        [frame.name, depth.label, depth.run, depth.abs_rel, frame.farthest_m]
        for frame in frames
        for depth in frame.depths
    ]
    return ["frame", "depth", "run", "abs_rel", "farthest_m"], rows


def importance_rows(shares: Mapping[str, Share]) -> tuple[list[str], list[list[Any]]]:
    """Header, and a row per setting."""
    rows = [[key, share.value, share.low, share.high] for key, share in shares.items()]
    return ["setting", "importance", "low", "high"], rows


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table so that a reader sees the old file or the new one."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(map(harmless, header))
        writer.writerows([harmless(value) for value in row] for row in rows)


def harmless(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula; numbers stay as they are."""
    is_formula = isinstance(value, str) and value.startswith(FORMULA_STARTS)
    return f"'{value}" if is_formula and parse_number(value) is None else value
