"""report.html: everything about a collection of runs in one file that needs no network."""

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoerefine.analysis.collect import Collection, Run
from zoerefine.analysis.frames import best_and_worst
from zoerefine.analysis.groups import METRIC, Difference, Group
from zoerefine.analysis.plots import PALETTE, footer, pseudo_label, scenes_word
from zoerefine.analysis.seed_statistics import ENOUGH_RUNS
from zoerefine.analysis.settings import ENOUGH, importances
from zoerefine.analysis.table import difference_rows, run_rows, scene_rows
from zoerefine.errors import UserError
from zoerefine.files import write_text

PAGE = Path(__file__).parent
CURVES_SHOWN = 200


def write_report(
    collection: Collection,
    groups: list[Group],
    differences: list[Difference],
    split: str,
    out: Path,
) -> Path:
    """Write the page; `overview.svg` and, if drawn, `settings.png` are taken from `out`."""
    shares = importances(collection.runs, split)
    frames, frames_note = held_out_frames(groups)
    header, rows = run_rows(collection, groups)
    second_header, second_rows = difference_rows(differences)
    settings = out / "settings.png"
    data = {
        "summary": summary(collection, groups, differences, split),
        "footer": footer(collection, groups, split),
        "overview": as_url(out / "overview.svg", "image/svg+xml"),
        "settings": as_url(settings, "image/png") if settings.exists() else "",
        "settings_note": settings_note(shares),
        "curves": curves(groups),
        "frames": [asdict(frame) for frame in frames],
        "frames_note": frames_note,
        "pseudo_label": pseudo_label(groups),
        "scenes": dict(zip(("header", "rows"), scene_rows(groups, split), strict=True)),
        "runs": {"header": header, "rows": rows},
        "differences": {"header": second_header, "rows": second_rows},
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


def as_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, and has no NaN."""
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


def summary(
    collection: Collection, groups: Sequence[Group], differences: Sequence[Difference], split: str
) -> list[str]:
    """What the numbers say, in sentences."""
    scored = [group for group in groups if len(group.scores)]
    lines = []
    if scored:
        best = scored[0]
        before = [run.metric(split, "pseudo", METRIC) for run in best.scored]
        level = sum(v for v in before if v is not None) / max(1, len(before))
        lines.append(
            f"Best on the {scenes_word(split)}: {best.label}, AbsRel {best.center:.4f}; "
            f"{pseudo_label(groups)} itself has {level:.4f} there."
        )
    if len(scored) > 1:
        found = next(d for d in differences if {d.first, d.second} == {g.label for g in scored[:2]})
        lines.append(
            f"Against the next, {scored[1].label}: {found.difference:+.4f}, probability of "
            f"improvement {found.probability:.0%}, better on {found.scenes_won} of {found.scenes} "
            f"scenes; {found.verdict}."
        )
    few = [group for group in scored if len(group.scores) < ENOUGH_RUNS]
    if few:
        lines.append(
            f"{len(few)} of {len(scored)} settings have fewer than {ENOUGH_RUNS} seeds: what looks "
            "like a difference may be chance."
        )
    unfinished = [run for run in collection.runs if run.state != "finished"]
    if unfinished:
        lines.append(f"{len(unfinished)} runs are not finished; what they have reached is counted.")
    if collection.left_out:
        lines.append(f"{len(collection.left_out)} runs are left out; the table says why.")
    return lines


def settings_note(shares: dict[str, float]) -> str:
    """The importances in a sentence."""
    if not shares:
        return f"Fewer than {ENOUGH} measured runs, or nothing differs: no importances."
    parts = [f"{key} {share:.0%}" for key, share in shares.items()]
    return f"Share of the variation of AbsRel (PED-ANOVA): {', '.join(parts)}."


def curves(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Every run's curve with its name and its group's colour."""
    found = []
    for number, group in enumerate(groups):
        for run in group.runs:
            if run.curve:
                name = group.label if len(group.runs) == 1 else f"{group.label}, seed {run.seed}"
                color = PALETTE[number % len(PALETTE)]
                found.append({"name": name, "color": color, **asdict(run.curve)})
    return found[:CURVES_SHOWN]


def held_out_frames(groups: Sequence[Group]) -> tuple[list[Any], str]:
    """Pictures of the best run, or the reason why there are none."""
    run = best_run(groups)
    if run is None:
        return [], "No run has been measured."
    try:
        frames = best_and_worst(run)
    except UserError as error:
        return [], f"No pictures of {run.name}: {error}"
    return frames, f"The held-out frames that {run.name} mends most, then those it mends least."


def best_run(groups: Sequence[Group]) -> Run | None:
    """The run with the lowest score."""
    runs = [(s, run) for g in groups for s, run in zip(g.scores, g.scored, strict=True)]
    return min(runs, key=lambda pair: pair[0])[1] if runs else None
