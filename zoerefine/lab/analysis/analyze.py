"""The batch analysis: collect, group, compare, draw, and write everything to a folder."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import HALF_WRITTEN, remove_half_written
from zoerefine.base.messages import first_few, say, visible
from zoerefine.base.metric_direction import is_maximized
from zoerefine.base.run_dir import REPORT_FILE, RunDir
from zoerefine.lab.analysis.groups import Measure, RunGroup, choose_measure, make_groups
from zoerefine.lab.analysis.pictures.overview import draw_overview
from zoerefine.lab.analysis.pictures.settings import draw_settings
from zoerefine.lab.analysis.pictures.style import LAYOUTS
from zoerefine.lab.analysis.report import tables
from zoerefine.lab.analysis.report.paper_tables import write_tables
from zoerefine.lab.analysis.report.report import write_report
from zoerefine.lab.analysis.statistics.comparisons import compare_groups
from zoerefine.lab.analysis.statistics.importance import importances
from zoerefine.lab.runs.collect import RunCache, collect
from zoerefine.lab.runs.filter import parse_filter
from zoerefine.lab.runs.metrics import read_metrics
from zoerefine.lab.runs.record import Collection, Run

WRITTEN = r"\w+\.(png|svg|pdf|csv|tex|md|html|json)"  # names of files
LISTED = 30  # metrics in a message
NAME_ONE = "give --metric NAME (and --maximize where higher is better), one of"
COMPARED = 20  # the best groups that are compared pair by pair


@dataclass(frozen=True)
class View:
    """How runs are grouped and compared, see `analyze`."""

    by: str | None = None
    baseline: str = ""
    style: str = "page"


def analyze(
    patterns: list[str],
    out: Path,
    where: str = "",
    by: str | None = None,
    metrics: Sequence[str] = (),
    maximize: bool = False,
    baseline: str = "",
    style: str = "page",
    patterns_of_output: Sequence[str] = (),
) -> tuple[Collection, list[Path]]:
    """Analyse runs into a folder; returns what was collected and the files written.

    Args:
        patterns: runs, studies, or globs of them.
        where: a filter (see `runs.filter.parse_filter`); empty: all runs.
        by: the setting to group by; None: all settings but the seed.
        metrics: what to compare, by name. Several are written to a folder each. Empty: AbsRel of
            our own runs, or the only metric of other runs.
        maximize: whether higher values of these metrics are better; of ours it is known.
        baseline: the name of the group that all others are compared with; empty: every pair of
            groups is compared.
        style: a row of `pictures.style.LAYOUTS`: the size of the graph and of its texts.
        patterns_of_output: find metrics in what scripts printed, beside those of their launches.

    Raises `UserError` where there is nothing to analyse, no run has one of the metrics, there is no
    such group, or the folder has files of something else.
    """
    if style not in LAYOUTS:
        raise UserError(f"there is no style {style!r}: give {', '.join(LAYOUTS)}")
    view = View(by, baseline, style)
    refuse_foreign_folder(out, metrics)
    remove_half_written(out.glob(HALF_WRITTEN), WRITTEN)
    keeps = parse_filter(where) if where else None
    cache = RunCache(out / REPORT_FILE, metrics, patterns_of_output)
    collection = collect(patterns, keeps, cache, metrics, patterns_of_output)
    if not metrics and all(run.is_foreign for run in collection.runs):
        metrics = [only_metric(collection.runs)]
        cache = RunCache(out / REPORT_FILE, metrics, patterns_of_output)
        collection = collect(patterns, keeps, cache, metrics, patterns_of_output)
    check_metrics(collection.runs, metrics)
    cache.save()
    if not metrics:
        return without_foreign_runs(collection, view, out)
    paths = []
    for name in metrics:
        folder = out / folder_name(name) if len(metrics) > 1 else out
        measure = Measure("", name, is_maximized(name, maximize))
        paths += write_analysis(collection, measure, view, folder)
    return collection, paths


def refuse_foreign_folder(out: Path, metrics: Sequence[str]) -> None:
    """Raises `UserError` where files like those of an analysis are no analysis's.

    Tables carry no mark, but an analysis writes `REPORT_FILE` before any other file.
    """
    if in_the_way := [path for path in (out, *out.parents) if path.exists() and not path.is_dir()]:
        raise UserError(f"--out {out}: {in_the_way[0]} is a file: give another --out")
    if (out / REPORT_FILE).is_file():
        return
    for folder in (out, *(out / folder_name(name) for name in metrics)):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if re.fullmatch(WRITTEN, path.name):
                raise UserError(
                    f"{path} could be overwritten, and {out} is no folder of an earlier analysis: "
                    "give another --out"
                )


def without_foreign_runs(
    collection: Collection, view: View, out: Path
) -> tuple[Collection, list[Path]]:
    """The analysis of AbsRel; runs that have none are left out with the reason."""
    reason = "it is of another repository and has no AbsRel: --metric NAME compares it"
    foreign = {run.path: reason for run in collection.runs if run.is_foreign}
    own = [run for run in collection.runs if not run.is_foreign]
    collection = Collection(own, collection.left_out | foreign)
    return collection, write_analysis(collection, choose_measure(own), view, out)


def only_metric(runs: Sequence[Run]) -> str:
    """The metric of these runs. Raises `UserError` where they have several, or none."""
    names = metric_names(runs)
    if not names:
        raise UserError(
            "no run has a metric: none left metrics.jsonl, results.json, TensorBoard files or a "
            "CSV log; --metric-pattern finds metrics in a job's output"
        )
    if len(names) > 1:
        raise UserError(f"which metric? {NAME_ONE}: {listed(names)}")
    return names[0]


def check_metrics(runs: Sequence[Run], names: Sequence[str]) -> None:
    """Raises `UserError` where no run has one of the metrics, or two have one folder."""
    for name in names:
        if all(run.final(name) is None for run in runs):
            own = RunDir(Path(runs[0].path))
            known = metric_names(runs) or sorted(read_metrics(own).final)
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"they have: {listed(known)}"
            raise UserError(f"no run has a finite final value of {name}; {hint}")
    folders = [folder_name(name) for name in names]
    if len(set(folders)) < len(folders):
        raise UserError(f"two of the metrics {', '.join(names)} would have the same folder")


def metric_names(runs: Sequence[Run]) -> list[str]:
    """Every metric of runs of other repositories."""
    return sorted({name for run in runs if run.is_foreign for name in run.finals})


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are; `none` for none."""
    return first_few(names, LISTED, "and ") or "none"


def folder_name(metric: str) -> str:
    """A metric's name as a folder's name."""
    return re.sub(r"[^\w.-]", "_", metric).lstrip(".") or "_"


def find_group(groups: Sequence[RunGroup], name: str) -> RunGroup:
    """The group of this name. Raises `UserError` where there is none, or it has no score."""
    found = next((group for group in groups if group.label == name), None)
    if found is None:
        names = [group.label for group in groups]
        close = get_close_matches(name, names, n=1)
        known = listed([repr(label) for label in names])
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {known}"
        raise UserError(f"--baseline {name}: no such group; {hint}")
    if not len(found.scores):
        raise UserError(f"--baseline {name}: this group has no final value to compare with")
    return found


def write_analysis(collection: Collection, measure: Measure, view: View, out: Path) -> list[Path]:
    """Group, compare and draw the runs by one measure; returns the files written."""
    remove_half_written(out.glob(HALF_WRITTEN), WRITTEN)
    groups = make_groups(collection.runs, measure, view.by)
    baseline = find_group(groups, view.baseline) if view.baseline else None
    compared = groups if baseline else groups[:COMPARED]
    differences = compare_groups(compared, measure, baseline)
    paths = draw_overview(collection, groups, measure, out, view.style)
    (out / "settings.png").unlink(missing_ok=True)
    shares = importances(collection.runs, measure)
    if draw_settings(collection.runs, measure, shares, out / "settings.png"):
        paths.append(out / "settings.png")
    for name, (header, rows) in {
        "runs.csv": tables.run_rows(collection, groups),
        "groups.csv": tables.group_rows(groups, measure),
        "scenes.csv": tables.scene_rows(groups, measure),
        "differences.csv": tables.difference_rows(differences),
    }.items():
        if name == "scenes.csv" and measure.metric:
            (out / name).unlink(missing_ok=True)
            continue
        tables.write_csv(out / name, header, rows)
        paths.append(out / name)
    summary = tables.summarize(collection, groups, differences, measure)
    for line in summary:
        say(visible(line))
    paths += write_tables(groups, differences, measure, baseline, out)
    paths += write_report(collection, groups, differences, measure, shares, summary, out)
    return paths
