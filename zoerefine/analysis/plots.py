"""One clear graph over many runs: how they learned, where they ended, what it costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoerefine.analysis.collect import Collection, Run, differing
from zoerefine.files import replacing

# Okabe and Ito's palette: told apart with any colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
PSEUDO_COLOR = "0.45"
FORMATS = ("png", "pdf", "svg")
Texts = dict[Path, str]
WIDTH_IN, HEIGHT_IN = 11, 4.3


def draw_overview(collection: Collection, out: Path) -> list[Path]:
    """Write overview.png, .pdf and .svg."""
    import matplotlib
    from matplotlib.figure import Figure

    shown = [run for run in collection.runs if score(run) is not None or run.curve]
    names = label_runs(shown)
    colors = {run.path: PALETTE[i % len(PALETTE)] for i, run in enumerate(shown)}
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(4, 4, 3))
    draw_curves(left, shown, names, colors)
    draw_finals(middle, shown, names, colors)
    draw_cost(right, shown, names, colors)
    for axis in (left, middle, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(footer(collection), fontsize=7, color="0.35")
    paths = []
    # The same runs give the same file: no dates, no random ids.
    with matplotlib.rc_context({"svg.hashsalt": "zoerefine", "svg.fonttype": "none"}):
        for kind in FORMATS:
            path = out / f"overview.{kind}"
            dates = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[kind]
            with replacing(path) as temporary:
                figure.savefig(temporary, format=kind, dpi=160, metadata=dates)
            paths.append(path)
    return paths


def score(run: Run) -> float | None:
    """Validation AbsRel; of a run without validation scenes, that on its test scenes."""
    value = run.metric("val", "refined", "abs_rel")
    return run.metric("test", "refined", "abs_rel") if value is None else value


def label_runs(runs: list[Run]) -> Texts:
    """Short names: the run's own, and the settings in which it differs."""
    keys = [key for key in differing(runs) if not key.startswith(("TRAIN.EPOCHS", "DATA."))]
    labels = {}
    for run in runs:
        values = [f"{key.rpartition('.')[2].lower()} {brief(run.settings[key])}" for key in keys]
        kind = "trial " if run.path.parent.name == "trials" else ""
        labels[run.path] = f"{kind}{run.name.lstrip('0') or '0'}\n{', '.join(values)}"
    return labels


def brief(value: Any) -> str:
    """A setting in a few characters."""
    return f"{value:.2g}" if isinstance(value, float) else str(value)[:24]


def draw_curves(axis: Any, runs: list[Run], names: Texts, colors: Texts) -> None:
    """Validation AbsRel over epochs, each curve labelled where it ends."""
    axis.set_title("learning: validation AbsRel", loc="left", fontsize=10)
    axis.set_xlabel("epoch")
    curves = [run for run in runs if run.curve]
    for run in curves:
        assert run.curve is not None
        color, curve = colors[run.path], run.curve
        axis.plot(curve.epochs, curve.refined, color=color, marker="o", markersize=3)
        if run.pruned:
            axis.plot(curve.epochs[-1], curve.refined[-1], marker="x", color=color, markersize=9)
    ends = [
        (run.curve.epochs[-1], run.curve.refined[-1], names[run.path].split("\n")[0],
         colors[run.path])
        for run in curves if run.curve
    ]  # fmt: skip
    if curves:
        pseudo = curves[0].curve.pseudo  # type: ignore[union-attr]
        axis.axhline(pseudo, color=PSEUDO_COLOR, linestyle="--", linewidth=1)
        label = curves[0].results.get("pseudo_label", "pseudo depth")
        axis.annotate(label, (0.98, pseudo), xycoords=("axes fraction", "data"), xytext=(0, 3),
                      textcoords="offset points", fontsize=8, color=PSEUDO_COLOR,
                      ha="right")  # fmt: skip
    axis.set_ylim(bottom=0)
    label_ends(axis, ends)
    axis.set_xlim(right=axis.get_xlim()[1] * 1.25)


def label_ends(axis: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names beside the curves' ends, moved apart where they would overlap."""
    low, high = axis.get_ylim()
    gap, lowest = (high - low) * 0.055, -float("inf")
    nudge = 0.03 * (axis.get_xlim()[1] - axis.get_xlim()[0])
    for x, y, name, color in sorted(ends, key=lambda end: end[1]):
        lowest = max(y, lowest + gap)
        axis.text(x + nudge, lowest, name, fontsize=8, color=color, va="center")


def draw_finals(axis: Any, runs: list[Run], names: Texts, colors: Texts) -> None:
    """Where each run ended, best at the top, against the pseudo depth on the same scenes."""
    axis.set_title("in the end: held-out AbsRel", loc="left", fontsize=10)
    finished = sorted((run for run in runs if score(run) is not None), key=lambda r: score(r) or 0)
    for row, run in enumerate(finished):
        value = score(run) or 0.0
        split = "val" if run.metric("val", "refined", "abs_rel") is not None else "test"
        before = run.metric(split, "pseudo", "abs_rel") or 0.0
        axis.plot([value, before], [row, row], color="0.85", linewidth=2, zorder=0)
        axis.plot(before, row, marker="|", color=PSEUDO_COLOR, markersize=10)
        axis.plot(value, row, marker="o", color=colors[run.path])
        axis.annotate(f"{value:.3f}", (value, row), xytext=(0, 6), textcoords="offset points",
                      fontsize=8, ha="center")  # fmt: skip
    axis.set_yticks(range(len(finished)), [tick(run, names) for run in finished], fontsize=7)
    axis.set_ylim(len(finished) - 0.5, -0.7)
    axis.set_xlim(left=0)
    axis.set_xlabel("AbsRel (bar: the pseudo depth's own)")


def tick(run: Run, names: Texts) -> str:
    """A row's name; the test scenes are other scenes, so that is said."""
    on_test = run.metric("val", "refined", "abs_rel") is None
    return names[run.path] + (" (test scenes)" if on_test else "")


def draw_cost(axis: Any, runs: list[Run], names: Texts, colors: Texts) -> None:
    """Accuracy against the engine's latency, or where nothing is exported, against size."""
    exported = any(run.engine for run in runs)
    axis.set_title("what it costs: held-out AbsRel", loc="left", fontsize=10)
    axis.set_xlabel("engine latency, ms a frame" if exported else "parameters, millions")
    for run in runs:
        value = score(run)
        if value is None or (exported and not run.engine):
            continue
        cost = run.engine["latency_ms"] if exported else run.results["parameters"] / 1e6
        axis.plot(cost, value, marker="o", color=colors[run.path])
        axis.annotate(names[run.path].split("\n")[0], (cost, value), xytext=(6, 0),
                      textcoords="offset points", fontsize=8, va="center")  # fmt: skip
        if exported:
            axis.plot(run.engine["eager_ms"], value, marker="o", mfc="none", color=colors[run.path])
            axis.annotate("eager", (run.engine["eager_ms"], value), xytext=(6, 0),
                          textcoords="offset points", fontsize=8, va="center")  # fmt: skip
    axis.set_xlim(left=0, right=axis.get_xlim()[1] * 1.35)
    axis.set_ylim(bottom=0)


def footer(collection: Collection) -> str:
    """Which commits and data the runs come from, and what is not in the graph."""
    runs = collection.runs
    commits = sorted({str(run.provenance.get("commit", "?"))[:8] for run in runs})
    data = sorted({str(run.results.get("data", "?")) for run in runs if run.results})
    digests = sorted({str(r.results["data_digest"])[:8] for r in runs if r.results})
    parts = [
        f"{len(runs)} runs",
        f"commit {', '.join(commits)}",
        f"data: {'; '.join(data)} {', '.join(digests)}",
    ]
    if len(digests) > 1:
        parts.append("NOT COMPARABLE: different data")
    seeds = min(len({r.seed for r in runs if r.group == g}) for g in {r.group for r in runs})
    if seeds < 3:
        parts.append("fewer than 3 seeds a setting: differences may be chance")
    unfinished = [run for run in runs if run.state != "finished"]
    if unfinished:
        parts.append("unfinished: " + ", ".join(f"{r.name} ({r.state})" for r in unfinished[:4]))
    if collection.left_out:
        parts.append(f"left out: {len(collection.left_out)} that cannot be read")
    return "   |   ".join(parts)
