"""report.html: everything about a collection of runs in one file that needs no network."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoerefine.base.files.atomic import write_text
from zoerefine.base.messages import visible
from zoerefine.base.yaml.keys import mapped
from zoerefine.lab.analysis.groups import Measure, RunGroup
from zoerefine.lab.analysis.pictures.captions import facts, legend, pseudo_label
from zoerefine.lab.analysis.pictures.style import PALETTE
from zoerefine.lab.analysis.report import page_pictures, sections, tables
from zoerefine.lab.analysis.statistics.comparisons import Difference
from zoerefine.lab.analysis.statistics.importance import Share
from zoerefine.lab.runs.record import Collection

PAGE = Path(__file__).parent / "page"
SCRIPTS = ("tables.js", "charts.js", "frames.js", "page.js")
# The columns of the comparisons that are shown at first.
COMPARISON = (
    *("first", "second", "verdict", "difference", "interval_low", "interval_high", "p_adjusted"),
    *("scenes_won", "scenes", "scenes_p_adjusted", "scenes_verdict"),
)


def write_report(
    collection: Collection,
    groups: list[RunGroup],
    differences: list[Difference],
    measure: Measure,
    shares: Mapping[str, Share],
    summary: Sequence[str],
    out: Path,
) -> list[Path]:
    """Write the page and the tables that only its sections need; returns the files written.

    Args:
        shares: the importances of the runs.
        summary: of `tables.summarize`.
    """
    curves = sections.shown_curves(groups, measure)
    examples = page_pictures.choose_examples(groups, measure)
    written = {
        "curves.csv": tables.curve_rows(curves),
        "frames.csv": tables.frame_rows(examples.frames),
        "importances.csv": tables.importance_rows(shares),
    }
    paths = []
    for name, (header, rows) in written.items():
        if rows:
            tables.write_csv(out / name, header, rows)
            paths.append(out / name)
        else:  # of an earlier analysis
            (out / name).unlink(missing_ok=True)
    colors = dict.fromkeys((group.label for group in groups), "other")
    colors |= {group.label: str(n) for n, group in enumerate(groups[: len(PALETTE)])}
    scenes = tables.scene_rows(groups, measure)
    runs = sections.runs_table(collection, groups, measure)
    curves_of = measure.label if measure.metric else "Validation AbsRel"
    total = len(collection.runs) + len(collection.left_out)
    data = {
        "summary": summary,
        "legend": " ".join(legend(groups, measure)),
        "facts": " ".join(facts(collection, groups, measure)),
        "graph": page_pictures.draw_graph(collection, groups, measure),
        "graph_text": page_pictures.graph_text(measure, curves_of),
        "measure": measure.label,
        "curves_of": curves_of,
        "step": "step" if measure.metric else "epoch",
        "foreign": all(run.is_foreign for run in collection.runs),
        "favour": sections.favour(measure),
        "colors": colors,
        "other_color": "other",
        "curves": sections.curve_data(curves, colors),
        "pseudo_label": pseudo_label(groups),
        **page_pictures.frame_data(examples),
        **sections.setting_data(groups, measure, shares, colors),
        "settings_note": sections.settings_note(shares, len(collection.runs), measure),
        "groups": sections.as_table(tables.group_rows(groups, measure), always=["mean"]),
        "scenes": sections.as_table(scenes, scenes[0][: 2 + len(PALETTE)], always=scenes[0]),
        "runs": sections.as_table(
            runs,
            sections.runs_shown_first(collection, measure),
            len(collection.runs),
            [sections.score_column(collection.runs, measure)],
        ),
        "runs_caption": sections.runs_caption(total),
        "differences": sections.as_table(
            sections.reordered(tables.difference_rows(differences), ["first", "second", "verdict"]),
            COMPARISON,
            always=["verdict"],
        ),
        "not_written": [name for name, (_, rows) in written.items() if not rows],
        "commands": sections.commands([run.path for run in collection.runs]),
    }
    write_text(out / "report.html", page_text(data))
    return [*paths, out / "report.html"]


def page_text(data: Mapping[str, Any]) -> str:
    """The page with its styles, scripts and data."""
    read = {path.name: path.read_text(encoding="utf-8") for path in PAGE.iterdir()}
    page = read["page.html"]
    for mark, text in (
        ("/*COLORS*/", page_pictures.color_rules()),
        ("/*CSS*/", read["page.css"]),
        ("/*JS*/", "\n".join(['"use strict";', *(read[name] for name in SCRIPTS)])),
        ("/*DATA*/", as_json(data)),
    ):
        page = page.replace(mark, text, 1)
    return page


def as_json(value: Any) -> str:
    """JSON that cannot end the script element around it, with null for NaN."""
    text = json.dumps(mapped(value, _plain), ensure_ascii=False, default=str)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _plain(value: Any) -> Any:
    """None for NaN; characters that are not printed become escapes."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return visible(value) if isinstance(value, str) and not value.isprintable() else value
