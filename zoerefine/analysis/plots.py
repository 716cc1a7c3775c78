"""One clear graph over many runs: how they learned, where they ended, what it costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.analysis.collect import Collection, Run
from zoerefine.analysis.groups import METRIC, Group
from zoerefine.analysis.seed_statistics import ENOUGH_RUNS, bootstrap_interval, pareto_front
from zoerefine.files import replacing

# Okabe and Ito's palette: told apart with any colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
PSEUDO_COLOR = "0.45"
FORMATS = ("png", "pdf", "svg")
WIDTH_IN, HEIGHT_IN = 11, 4.3
SHOWN_GROUPS = len(PALETTE)  # more cannot be told apart; the table has them all


def draw_overview(collection: Collection, groups: list[Group], split: str, out: Path) -> list[Path]:
    """Write overview.png, .pdf and .svg of the best groups."""
    import matplotlib
    from matplotlib.figure import Figure

    shown = groups[:SHOWN_GROUPS]
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(4, 4, 3))
    draw_curves(left, shown)
    draw_finals(middle, shown, split)
    draw_cost(right, shown, split)
    for axis in (left, middle, right):
        axis.spines[["top", "right"]].set_visible(False)
    notes = footer(collection, groups, split)
    figure.supxlabel("   |   ".join(notes), fontsize=7, color="0.35", wrap=True)
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


def colored(groups: Sequence[Group]) -> list[tuple[Group, str]]:
    """Each group with its colour."""
    return list(zip(groups, PALETTE, strict=False))


def draw_curves(axis: Any, groups: Sequence[Group]) -> None:
    """Validation AbsRel over epochs: a group's mean with its interval, named where it ends."""
    axis.set_title("learning: validation AbsRel", loc="left", fontsize=10)
    axis.set_xlabel("epoch")
    ends, pseudo = [], []
    for group, color in colored(groups):
        curves = [run.curve for run in group.runs if run.curve]
        pseudo += [curve.pseudo for curve in curves]
        if not curves:
            continue
        epochs, values = aligned([(c.epochs, c.refined) for c in curves])
        mean = values.mean(0)
        axis.plot(epochs, mean, color=color, marker="o", markersize=3)
        if len(values) >= ENOUGH_RUNS:
            bounds = [bootstrap_interval(values[:, i : i + 1]) for i in range(len(epochs))]
            low, high = zip(*(b for b in bounds if b is not None), strict=True)
            axis.fill_between(epochs, low, high, color=color, alpha=0.2, linewidth=0)
        else:
            for row in values[: len(values) > 1 and len(values)]:
                axis.plot(epochs, row, color=color, linewidth=0.6, alpha=0.6)
        if any(run.pruned for run in group.runs):
            axis.plot(epochs[-1], mean[-1], marker="x", color=color, markersize=9)
        ends.append((float(epochs[-1]), float(mean[-1]), short(group), color))
    if pseudo:
        level = float(np.mean(pseudo))
        axis.axhline(level, color=PSEUDO_COLOR, linestyle="--", linewidth=1)
        axis.annotate(pseudo_label(groups), (0.98, level), xycoords=("axes fraction", "data"),
                      xytext=(0, 3), textcoords="offset points", fontsize=8,
                      color=PSEUDO_COLOR, ha="right")  # fmt: skip
    # Refiners begin from nothing: where first epochs are far off, what comes of them is shown.
    levels = [*pseudo, *(value for _, value, _, _ in ends)]
    axis.set_ylim(0, min(axis.get_ylim()[1], 1.5 * max(levels, default=1.0)))
    label_ends(axis, ends)
    axis.set_xlim(right=axis.get_xlim()[1] * 1.3)


def aligned(curves: list[tuple[list[int], list[float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Curves at the epochs that all of them have: [epochs], [curves, epochs]."""
    common = sorted(set.intersection(*(set(epochs) for epochs, _ in curves)))
    if not common:  # runs of other lengths and rhythms: the longest speaks for the group
        epochs, values = max(curves, key=lambda curve: len(curve[0]))
        return np.array(epochs), np.array([values])
    rows = [dict(zip(epochs, values, strict=True)) for epochs, values in curves]
    return np.array(common), np.array([[row[epoch] for epoch in common] for row in rows])


def short(group: Group) -> str:
    """A group's name beside a curve."""
    name = group.label.split(":")[0] if len(group.runs) == 1 else group.label
    return name if len(name) <= 24 else f"{name[:22]}..."


def pseudo_label(groups: Sequence[Group]) -> str:
    """Whose the pseudo depth is."""
    runs = [run for group in groups for run in group.runs if run.results]
    return str(runs[0].results.get("pseudo_label", "pseudo depth")) if runs else "pseudo depth"


def label_ends(axis: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names beside the curves' ends, moved apart where they would overlap."""
    low, high = axis.get_ylim()
    gap, lowest = (high - low) * 0.055, -float("inf")
    nudge = 0.03 * (axis.get_xlim()[1] - axis.get_xlim()[0])
    for x, y, name, color in sorted(ends, key=lambda end: end[1]):
        lowest = max(y, lowest + gap)
        axis.text(x + nudge, lowest, name, fontsize=8, color=color, va="center")


def draw_finals(axis: Any, groups: Sequence[Group], split: str) -> None:
    """Every run's final metric as a point, the group's interquartile mean and its interval."""
    axis.set_title(f"in the end: AbsRel on {scenes_word(split)}", loc="left", fontsize=10)
    scored = [(group, color) for group, color in colored(groups) if len(group.scores)]
    for row, (group, color) in enumerate(scored):
        axis.plot(group.scores, [row] * len(group.scores), "o", color=color, alpha=0.6)
        if group.interval:
            axis.plot(group.interval, [row, row], color=color, linewidth=3, alpha=0.9)
        axis.annotate(f"{group.center:.3f}", (group.center, row), xytext=(0, 7),
                      textcoords="offset points", fontsize=8, ha="center")  # fmt: skip
    axis.set_yticks(
        range(len(scored)), [group.label.replace(": ", "\n") for group, _ in scored], fontsize=7
    )
    axis.set_ylim(len(scored) - 0.5, -0.7)
    axis.set_xlabel("AbsRel")
    axis.locator_params(axis="x", nbins=5)
    if scored:
        show_pseudo(axis, [group for group, _ in scored], split)


def show_pseudo(axis: Any, groups: Sequence[Group], split: str) -> None:
    """The pseudo depth's own level as a line; as a note at the edge where it is too far away."""
    runs = [run for group in groups for run in group.scored]
    values = [run.metric(split, "pseudo", METRIC) for run in runs]
    known = [value for value in values if value is not None]
    scores = np.concatenate([group.scores for group in groups])
    margin = 0.4 * max(float(np.ptp(scores)), 0.1 * float(scores.max()))
    low, high = max(0.0, float(scores.min()) - margin), float(scores.max()) + margin
    if known:
        level, label = float(np.mean(known)), pseudo_label(groups)
        if level <= high + 3 * (high - low):
            high = max(high, level + margin / 2)
            axis.axvline(level, color=PSEUDO_COLOR, linestyle="--", linewidth=1)
            axis.text(level, -0.6, f"{label} ", fontsize=8, color=PSEUDO_COLOR, ha="right")
        else:
            axis.text(1, 0.01, f"{label} {level:.3f} \u2192", transform=axis.transAxes, fontsize=8,
                      color=PSEUDO_COLOR, ha="right")  # fmt: skip
    axis.set_xlim(low, high)


def scenes_word(split: str) -> str:
    """What a split is called in the graph."""
    return "test scenes" if split == "test" else "validation scenes"


def draw_cost(axis: Any, groups: Sequence[Group], split: str) -> None:
    """Accuracy against engine latency with the Pareto front; without engines, against size."""
    exported = any(run.engine for group in groups for run in group.runs)
    axis.set_title("what it costs: AbsRel", loc="left", fontsize=10)
    axis.set_xlabel("engine latency, ms a frame" if exported else "parameters, millions")
    points = []
    for group, color in colored(groups):
        own = cost_points(group, split, exported)
        if not own:
            continue
        costs, values = np.array(own).T
        axis.plot(costs, values, "o", color=color, alpha=0.6)
        axis.annotate(short(group), (costs.mean(), values.mean()), xytext=(7, 0), fontsize=8,
                      textcoords="offset points", va="center", color=color)  # fmt: skip
        points += own
    front = pareto_front(points)
    if len(front) > 1:
        steps = np.array([points[i] for i in front])
        axis.step(steps[:, 0], steps[:, 1], where="post", color="0.5", linewidth=1, zorder=0)
    axis.set_xlim(left=0, right=axis.get_xlim()[1] * 1.5)
    axis.set_ylim(bottom=0)


def cost_points(group: Group, split: str, exported: bool) -> list[tuple[float, float]]:
    """(cost, AbsRel) of every run of a group that has both."""
    points = []
    for run in group.runs:
        value = final_metric(run, split)
        cost = run.engine.get("latency_ms") if exported else parameters(run)
        if value is not None and cost is not None:
            points.append((float(cost), value))
    return points


def final_metric(run: Run, split: str) -> float | None:
    """AbsRel on the split, or for a run that was not measured there, on the other."""
    value = run.metric(split, "refined", METRIC)
    return run.metric("test", "refined", METRIC) if value is None else value


def parameters(run: Run) -> float | None:
    """Millions of parameters."""
    count = run.results.get("parameters")
    return count / 1e6 if isinstance(count, int) else None


def footer(collection: Collection, groups: Sequence[Group], split: str) -> list[str]:
    """Which commits and data the runs come from, and what is not in the graph and why."""
    runs = collection.runs
    commits = sorted({run.commit[:8] for run in runs})
    finished = [run for run in runs if run.results]
    data = sorted({f"{r.results.get('data')} {str(r.results.get('data_digest'))[:8]}"
                   for r in finished})  # fmt: skip
    parts = [f"{len(runs)} runs", f"commit {', '.join(commits)}", f"data: {'; '.join(data)}"]
    if len({run.results.get("data_digest") for run in finished}) > 1:
        parts.append("NOT COMPARABLE: different data")
    if min((len(group.scores) for group in groups if len(group.scores)), default=0) < ENOUGH_RUNS:
        parts.append(f"fewer than {ENOUGH_RUNS} seeds a setting: differences may be chance")
    unscored = [run for run in finished if run.metric(split, "refined", METRIC) is None]
    if unscored:
        names = ", ".join(run.name for run in unscored[:4])
        parts.append(f"not measured on {scenes_word(split)}: {names}")
    unfinished = [run for run in runs if run.state != "finished"]
    if unfinished:
        parts.append("unfinished: " + ", ".join(f"{r.name} ({r.state})" for r in unfinished[:4]))
    if len(groups) > SHOWN_GROUPS:
        parts.append(f"{len(groups) - SHOWN_GROUPS} more groups in the table")
    if collection.left_out:
        parts.append(f"left out: {len(collection.left_out)}, named in runs.csv")
    return parts
