"""report.html: everything about a collection of runs in one file that needs no network."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoerefine.analysis.captions import facts, legend, pseudo_label
from zoerefine.analysis.collect import Collection
from zoerefine.analysis.comparisons import Difference
from zoerefine.analysis.example_frames import best_and_worst
from zoerefine.analysis.figure_style import PALETTE
from zoerefine.analysis.groups import RunGroup
from zoerefine.analysis.importance import ENOUGH_FOR_IMPORTANCE, ENOUGH_TO_BE_SURE, Share
from zoerefine.analysis.measure import Measure
from zoerefine.analysis.run_record import Curve, Run
from zoerefine.analysis.summary import summarize
from zoerefine.analysis.table import difference_rows, run_rows, scene_rows
from zoerefine.errors import UserError
from zoerefine.files import write_text

PAGE = Path(__file__).parent
CURVES_SHOWN = 200
POINTS_SHOWN = 500  # of a curve


def write_report(
    collection: Collection,
    groups: list[RunGroup],
    differences: list[Difference],
    measure: Measure,
    shares: Mapping[str, Share],
    out: Path,
) -> Path:
    """Write the page; `overview.svg` and, where drawn, `settings.png` are taken from `out`.

    Args:
        shares: the importances of the runs.
    """
    frames, frames_note = held_out_frames(groups, measure)
    settings = out / "settings.png"
    data = {
        "summary": summarize(collection, groups, differences, measure),
        "legend": " ".join(legend(groups, measure)),
        "facts": " ".join(facts(collection, groups, measure)),
        "overview": as_url(out / "overview.svg", "image/svg+xml"),
        "settings": as_url(settings, "image/png") if settings.exists() else "",
        "settings_note": settings_note(shares, len(collection.runs), measure),
        "measure": measure.label if measure.metric else "Validation AbsRel",
        "step": "step" if measure.metric else "epoch",
        "foreign": all(run.is_foreign for run in collection.runs),
        "favour": favour(measure),
        "curves": curves(groups, measure),
        "frames": [asdict(frame) for frame in frames],
        "frames_note": frames_note,
        "pseudo_label": pseudo_label(groups),
        "scenes": as_table(scene_rows(groups, measure)),
        "runs": as_table(run_rows(collection, groups)),
        "differences": as_table(difference_rows(differences)),
    }
    page = (PAGE / "page.html").read_text(encoding="utf-8")
    for mark, text in (
        ("/*CSS*/", (PAGE / "page.css").read_text(encoding="utf-8")),
        ("/*JS*/", (PAGE / "page.js").read_text(encoding="utf-8")),
        ("/*DATA*/", as_json(data)),
    ):
        page = page.replace(mark, text, 1)
    path = out / "report.html"
    write_text(path, page)
    return path


def as_table(table: tuple[list[str], list[list[Any]]]) -> dict[str, Any]:
    """Header and rows by name, without the columns that are empty in every row."""
    header, rows = table
    used = [c for c in range(len(header)) if any(row[c] not in (None, "") for row in rows)]
    return {"header": [header[c] for c in used], "rows": [[row[c] for c in used] for row in rows]}


def as_json(value: Any) -> str:
    """JSON that cannot end the script element around it, with null for NaN."""
    text = json.dumps(_finite(value), ensure_ascii=False, default=str)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def as_url(path: Path, kind: str) -> str:
    """A file as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def settings_note(shares: Mapping[str, Share], runs: int, measure: Measure) -> str:
    """The importances in a sentence."""
    if not shares:
        return (
            f"No importances: fewer than {ENOUGH_FOR_IMPORTANCE} runs with a final metric, or no "
            "setting differs."
        )
    parts = [f"{key} {share}" for key, share in shares.items()]
    rough = f" A rough estimate: only {runs} runs." if runs < ENOUGH_TO_BE_SURE else ""
    bounds = (
        " In brackets: the range of 80% of random halves of the runs."
        if any(share.low is not None for share in shares.values())
        else ""
    )
    return (
        f"Importance for {measure.label}, to be in the better half of the runs (PED-ANOVA): "
        f"{', '.join(parts)}."
        f"{bounds}{rough}"
    )


def favour(measure: Measure) -> str:
    """What the sign of a difference means."""
    sign = "positive" if measure.maximize else "negative"
    return f"A {sign} difference (of the means over seeds) is in favour of the first group."


def curves(groups: Sequence[RunGroup], measure: Measure) -> list[dict[str, Any]]:
    """Every run's curve with its name and its group's colour."""
    found = []
    for number, group in enumerate(groups):
        for run in group.runs:
            if curve := measure.curve(run):
                name = group.label if len(group.runs) == 1 else f"{group.label}, seed {run.seed}"
                color = PALETTE[number % len(PALETTE)]
                found.append({"name": name, "color": color, **asdict(thinned(curve))})
    return found[:CURVES_SHOWN]


def thinned(curve: Curve) -> Curve:
    """A curve with at most POINTS_SHOWN points, the last one among them."""
    every = -(-len(curve.epochs) // POINTS_SHOWN)
    kept = slice((len(curve.epochs) - 1) % every, None, every)
    return Curve(curve.epochs[kept], curve.refined[kept], curve.pseudo)


def held_out_frames(groups: Sequence[RunGroup], measure: Measure) -> tuple[list[Any], str]:
    """Example frames of the best run and what they are, or the reason why there are none."""
    run = best_run(groups, measure)
    if run is None:
        return [], "No run has a final metric."
    if run.is_foreign:
        return [], "Runs of other repositories have no frames that could be shown."
    try:
        frames = best_and_worst(run)
    except (UserError, OSError) as error:
        return [], f"No frames of {run.name}: {error}"
    note = f"The held-out frames that {run.name} improves most, then those it improves least."
    return frames, note


def best_run(groups: Sequence[RunGroup], measure: Measure) -> Run | None:
    """The run with the best score."""
    runs = [(s, run) for g in groups for s, run in zip(g.scores, g.scored, strict=True)]
    return min(runs, key=lambda pair: measure.sign * pair[0])[1] if runs else None
