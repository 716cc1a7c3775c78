"""The batch analysis: collect, group, compare, draw, and write everything to a folder."""

from pathlib import Path

from zoerefine.analysis.collect import Collection, collect
from zoerefine.analysis.comparisons import compare_groups
from zoerefine.analysis.groups import choose_split, make_groups
from zoerefine.analysis.overview import draw_overview
from zoerefine.analysis.report import write_report
from zoerefine.analysis.run_filter import parse_filter
from zoerefine.analysis.settings_picture import draw_settings
from zoerefine.analysis.table import difference_rows, group_rows, run_rows, scene_rows, write_csv

COMPARED = 20  # the best groups that are compared pair by pair


def analyze(
    patterns: list[str], out: Path, where: str = "", by: str | None = None
) -> tuple[Collection, list[Path]]:
    """Analyse runs into a folder; returns what was collected and the files written.

    Args:
        patterns: runs, studies, or globs of them.
        where: a filter (see `run_filter.parse_filter`); empty: all runs.
        by: the setting to group by; None: all settings but the seed.
    """
    keeps = parse_filter(where) if where else None
    collection = collect(patterns, keeps, cache_file=out / "collected.json")
    split = choose_split(collection.runs)
    groups = make_groups(collection.runs, split, by)
    differences = compare_groups(groups[:COMPARED], split)
    paths = draw_overview(collection, groups, split, out)
    (out / "settings.png").unlink(missing_ok=True)
    if draw_settings(collection.runs, split, out / "settings.png"):
        paths.append(out / "settings.png")
    for name, (header, rows) in {
        "runs.csv": run_rows(collection, groups),
        "groups.csv": group_rows(groups),
        "scenes.csv": scene_rows(groups, split),
        "differences.csv": difference_rows(differences),
    }.items():
        write_csv(out / name, header, rows)
        paths.append(out / name)
    paths.append(write_report(collection, groups, differences, split, out))
    return collection, paths
