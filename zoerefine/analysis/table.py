"""The numbers behind the graph and the page: runs.csv, groups.csv and differences.csv."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from zoerefine.analysis.collect import Collection, differing
from zoerefine.analysis.groups import METRIC, Difference, Group, common_scenes, scene_scores
from zoerefine.files import replacing
from zoerefine.metrics import NAMES

METRICS = tuple(
    (split, which, name)
    for split in ("val", "test")
    for which in ("pseudo", "refined")
    for name in NAMES
)
BOUNDS = ("interval", "paired")  # fields of a comparison that are two numbers


def run_rows(collection: Collection, groups: Sequence[Group]) -> tuple[list[str], list[list[Any]]]:
    """Header and a row a run: what it was and reached; left-out ones with the reason."""
    keys = differing(collection.runs)
    header = [
        "run", "state", "pruned", "group", "seed", "commit", *keys,
        *("/".join(metric) for metric in METRICS),
        "parameters", "images_per_s", "wait_share", "latency_ms", "path", "note",
    ]  # fmt: skip
    labels = {run.path: group.label for group in groups for run in group.runs}
    rows = []
    for run in collection.runs:
        cost = [run.results.get(key) for key in ("parameters", "images_per_s", "wait_share")]
        rows.append([
            run.name, run.state, run.pruned, labels[run.path], run.seed, run.commit,
            *(run.settings.get(key) for key in keys),
            *(run.metric(*metric) for metric in METRICS),
            *cost, run.engine.get("latency_ms"), run.path, "",
        ])  # fmt: skip
    for path, reason in collection.left_out.items():
        name = Path(path).name
        rows.append([name, "left out", *[None] * (len(header) - 4), path, reason])
    return header, rows


def group_rows(groups: Sequence[Group]) -> tuple[list[str], list[list[Any]]]:
    """Header and a row a group: the interquartile mean and its interval."""
    header = ["group", "runs", "scored", "interquartile_mean", "low", "high"]
    rows = [
        [g.label, len(g.runs), len(g.scores), g.center, *(g.interval or (None, None))]
        for g in groups
    ]
    return header, rows


def difference_rows(differences: Sequence[Difference]) -> tuple[list[str], list[list[Any]]]:
    """Header and a row a comparison."""
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


def scene_rows(groups: Sequence[Group], split: str) -> tuple[list[str], list[list[Any]]]:
    """Header and a row a scene: the pseudo depth's own mean score and each group's."""
    scored = [group for group in groups if group.scored]
    runs = [run for group in scored for run in group.scored]
    scenes = common_scenes(runs, split)
    pseudo = [run.scenes(split, "pseudo", METRIC) for run in runs]
    rows = []
    for column, scene in enumerate(scenes):
        before = [values[scene] for values in pseudo if scene in values]
        means = [scene_scores(group.scored, split, scenes)[:, column].mean() for group in scored]
        rows.append([scene, sum(before) / max(1, len(before)), *map(float, means)])
    return ["scene", "pseudo", *(group.label for group in scored)], rows


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table whole."""
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
