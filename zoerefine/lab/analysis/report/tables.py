"""The numbers behind the graph and the page: a CSV file for each table, and what they mean."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from zoerefine.base import registries
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing
from zoerefine.base.messages import counted
from zoerefine.lab.analysis.group_names import metric_text, metric_texts
from zoerefine.lab.analysis.groups import (
    SEEDS,
    Measure,
    RunGroup,
    lost_note,
    names_note,
    not_comparable,
    not_comparable_note,
    other_jobs,
    packages_note,
    same_metrics_note,
    samples,
)
from zoerefine.lab.analysis.pictures.captions import pseudo_label
from zoerefine.lab.analysis.report.page_pictures import ExampleFrame
from zoerefine.lab.analysis.statistics.comparisons import (
    Difference,
    common_scenes,
    scene_scores,
    seeds_note,
)
from zoerefine.lab.analysis.statistics.importance import Share
from zoerefine.lab.analysis.statistics.significance import ENOUGH_RUNS
from zoerefine.lab.listing.labels import read_labels
from zoerefine.lab.runs.group_key import COMMIT
from zoerefine.lab.runs.metrics.steps import parse_number
from zoerefine.lab.runs.record import Collection, Curve, Run, differing_keys, finite_number

METRICS = tuple(
    (split, which, name)
    for which in ("refined", "pseudo")
    for split in ("val", "test")
    for name in registries.METRICS
)
Rows = tuple[list[str], list[list[Any]]]  # a header, and the rows
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # of a cell, in spreadsheets
BOUNDS = ("interval", "paired")  # fields of a `Difference` that are two numbers


# The columns of runs.csv before and after those of settings and metrics.
FIRST = ("run", "state", "pruned", "group", "seed", "commit")
LAST = ("parameters", "images_per_s", "wait_share", "latency_ms", "engine", "precision",
        "repository", "data_name", "data_digest", "path", "note")  # fmt: skip


def setting_columns(runs: list[Run]) -> dict[str, str]:
    """The settings that differ, and the names of their columns."""
    keys = [key for key in differing_keys(runs) if key != COMMIT]  # it has a column
    return {key: f"{key} (config)" if key in (*FIRST, *LAST) else key for key in keys}


def metric_column(name: str, keys: Iterable[str]) -> str:
    """The name of a metric's column beside those of settings, which a script may log, too."""
    return f"{name} (metric)" if name in {*FIRST, *LAST, *keys} else name


def run_rows(collection: Collection, groups: Sequence[RunGroup]) -> Rows:
    """Header, and per run its settings and metrics, or the reason why it was left out."""
    keys = setting_columns(collection.runs)
    names = list(dict.fromkeys(name for run in collection.runs for name in run.finals))
    metrics = () if all(run.is_foreign for run in collection.runs) else METRICS
    header = [
        *FIRST, *keys.values(), *(metric_column(name, keys) for name in names),
        *("/".join(metric) for metric in metrics), *LAST,
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
            *cost, run.latency_ms, *map(run.engine.get, ("engine", "precision")), *origin(run),
            run.path, "; ".join(run.faults),
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


def group_rows(groups: Sequence[RunGroup], measure: Measure) -> Rows:
    """Header, and per group the mean over seeds with its interval, and the pseudo depth's mean."""
    header = ["group", "runs", "scored", "mean", "low", "high", "pseudo", "note"]
    mark = not_comparable_note(groups, measure)
    rows = [
        [g.label, len(g.runs), len(g.scores), g.mean if g.scored else None,
         *(g.interval or (None, None)), pseudo_mean(g, measure),
         "; ".join(filter(None, [mark, lost_note(g, measure)]))]
        for g in groups
    ]  # fmt: skip
    return header, rows


def pseudo_mean(group: RunGroup, measure: Measure) -> float | None:
    """The mean score of the pseudo depth over a group's scored runs; None where it is unknown."""
    known = [value for run in group.scored if (value := measure.pseudo(run)) is not None]
    return sum(known) / len(known) if known else None


def difference_rows(differences: Sequence[Difference]) -> Rows:
    """Header, and a row per comparison."""
    header = []
    for f in fields(Difference):
        header += [f"{f.name}_low", f"{f.name}_high"] if f.name in BOUNDS else [f.name]
    rows = []
    for difference in differences:
        row: list[Any] = []
        found = asdict(difference)
        if not difference.scenes:  # other metrics have none
            found |= {"scenes": None, "scenes_won": None}
        for name, value in found.items():
            row += (value or (None, None)) if name in BOUNDS else [value]
        rows.append(row)
    return header, rows


def scene_rows(groups: Sequence[RunGroup], measure: Measure) -> Rows:
    """Header, and per scene the pseudo depth's mean score and each group's.

    Groups that cannot be compared have a note in each row.
    """
    note = [text] if (text := not_comparable_note(groups, measure)) else []
    scored = [group for group in groups if group.scored]
    runs = [run for group in scored for run in group.scored]
    scenes = common_scenes(runs, measure)
    pseudo = [measure.scenes(run, "pseudo") for run in runs]
    rows = []
    for column, scene in enumerate(scenes):
        before = [values[scene] for values in pseudo if scene in values]
        means = [scene_scores(group.scored, measure, scenes)[:, column].mean() for group in scored]
        rows.append([scene, sum(before) / max(1, len(before)), *map(float, means), *note])
    header = ["scene", "pseudo", *(group.label for group in scored)]
    return [*header, *(["note"] if note else [])], rows


@dataclass(frozen=True)
class RunCurve:
    """A run's learning curve as the page shows it."""

    group: str
    run: str
    seed: int | float | str | None
    curve: Curve


def curve_rows(curves: Sequence[RunCurve]) -> Rows:
    """Header, and a row per point of each curve; `pseudo` is the pseudo depth's value."""
    rows = [
        [one.group, one.run, one.seed, step, value, finite_number(one.curve.pseudo)]
        for one in curves
        for step, value in zip(one.curve.epochs, one.curve.refined, strict=True)
    ]
    return ["group", "run", "seed", "step", "value", "pseudo"], rows


def frame_rows(frames: Sequence[ExampleFrame]) -> Rows:
    """Header, and a row per depth of each example frame."""
    rows = [
        [frame.name, depth.label, depth.run, depth.abs_rel, frame.farthest_m]
        for frame in frames
        for depth in frame.depths
    ]
    return ["frame", "depth", "run", "abs_rel", "farthest_m"], rows


def importance_rows(shares: Mapping[str, Share]) -> Rows:
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


def summarize(
    collection: Collection,
    groups: Sequence[RunGroup],
    differences: Sequence[Difference],
    measure: Measure,
) -> list[str]:
    """The best group, the next one, and what limits the conclusions."""
    scored = [group for group in groups if len(group.scores)]
    lines = [best_line(scored[0], groups, measure)] if scored else []
    if other := not_comparable(collection.runs, measure):
        lines.append(f"NOT COMPARABLE: the runs were measured on different {other}.")
    if differences:
        lines.append(comparison_line(with_best(differences, scored), measure))
    if note := seeds_note(groups, differences):
        lines.append(note)
    lines += [lost_line(group, measure) for group in groups if group.lost]
    lines += unread_lines(groups, measure)
    lines += [repeated_line(group) for group in groups if group.repeated]
    lines += [seedless_line(group) for group in groups if group.seedless]
    notes = ((group.label, note(group)) for group in groups for note in (packages_note, names_note))
    lines += [f"{label}: {note}." for label, note in notes if note]
    mixed = [group.label for group in scored[1:] if samples([group]) != SEEDS]
    lines += [f"{label}: its mean is over runs of several settings." for label in mixed]
    few = [group for group in scored if len(group.scores) < ENOUGH_RUNS]
    if few:
        has = "has" if len(few) == 1 else "have"
        lines.append(
            f"{len(few)} of {counted(len(scored), 'group')} {has} fewer than {ENOUGH_RUNS} seeds; "
            "no conclusion is drawn from them."
        )
    unfinished = [run for run in collection.runs if run.state != "finished"]
    if unfinished:
        lines.append(
            f"Not finished: {counted(len(unfinished), 'run')}; their results so far count only "
            "where no run of the group finished, and nothing is concluded from them."
        )
    if archived := sum(map(is_archived, collection.runs)):
        lines.append(f"Archived: {counted(archived, 'run')}, counted like all others.")
    if collection.left_out:
        count = counted(len(collection.left_out), "run")
        lines.append(f"Left out: {count}; the table of runs gives the reasons.")
    return lines


def lost_line(group: RunGroup, measure: Measure) -> str:
    """That a group has runs without a value."""
    others = "" if other_jobs(group.runs) else "its mean is of the others, and "
    rest = f"; {others}nothing is concluded from it" if group.scored else ""
    return f"{group.label}: {lost_note(group, measure)}{rest}."


def is_archived(run: Run) -> bool:
    """Whether a run is archived; one whose labels are damaged is not."""
    with suppress(UserError):
        return read_labels(Path(run.path)).archived
    return False


def repeated_line(group: RunGroup) -> str:
    """That runs of a group have one seed."""
    return (
        f"{group.label}: {counted(group.repeated, 'run')} with the seed of a later one left out: a "
        "repetition is no further seed."
    )


def seedless_line(group: RunGroup) -> str:
    """That a group has runs of which the seed is not known."""
    count = counted(group.seedless, "run")
    return f"{group.label}: {count} without a seed left out: a seed not known may be another's."


def unread_lines(groups: Sequence[RunGroup], measure: Measure) -> list[str]:
    """What a script seems not to read: what is searched, or its seed."""
    everything = [run for group in groups for run in group.runs]
    if len(groups) > 1 and (note := same_metrics_note(everything, measure)):
        return [f"{note} They are no independent results."]
    notes = ((group.label, same_metrics_note(group.runs, measure)) for group in groups)
    return [f"{label}: {note} They count as one." for label, note in notes if note]


def best_line(best: RunGroup, groups: Sequence[RunGroup], measure: Measure) -> str:
    """The best group beside the pseudo depth."""
    pseudo = pseudo_mean(best, measure)
    before = "" if pseudo is None else f"; the {pseudo_label(groups)} has {metric_text(pseudo)}"
    of = f"mean over {len(best.scores)} {samples([best])}" if len(best.scores) > 1 else "one seed"
    direction = f"; {measure.better} is better" if measure.metric else ""
    value = f"{measure.label} {metric_text(best.mean)} ({of}{direction})"
    return f"Best{measure.on_place}: {best.label}, {value}{before}."


def with_best(differences: Sequence[Difference], scored: Sequence[RunGroup]) -> Difference:
    """The comparison of the best group with the next one, or with the baseline."""
    best, pairs = scored[0].label, {(d.first, d.second): d for d in differences}
    ranked = [group.label for group in scored]
    for label in ranked[1:]:
        if found := pairs.get((best, label)) or pairs.get((label, best)):
            return found
    raise AssertionError("every comparison has the best group or a baseline")


def comparison_line(found: Difference, measure: Measure) -> str:
    """Two groups in a sentence."""
    difference, *bounds = metric_texts([found.difference, *(found.interval or ())], "+")
    parts = [f"difference of the means {difference}"]
    if bounds:
        parts.append(f"95% interval {' to '.join(bounds)}")
    if found.probability is not None:
        parts.append(f"{measure.better} in {found.probability:.0%} of the pairs of runs")
    if found.scenes:
        parts.append(f"{measure.better} on {found.scenes_won} of {counted(found.scenes, 'scene')}")
    line = (
        f"{found.first} against {found.second}: {', '.join(parts)}; {named(found.verdict, found)}."
    )
    if found.scenes_p_adjusted is not None:
        line += f" By scene, for these trainings: {named(found.scenes_verdict, found)}."
    return line


def named(verdict: str, found: Difference) -> str:
    """A verdict with the groups' names."""
    return verdict.replace("the first", found.first).replace("the second", found.second)
