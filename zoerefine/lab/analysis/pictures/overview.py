"""One clear graph over many runs: learning curves, final metrics, accuracy against cost."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from zoerefine.base.files.atomic import write_text
from zoerefine.lab.analysis.costs import Cost, front_of_means, group_costs
from zoerefine.lab.analysis.group_names import metric_text, shortened
from zoerefine.lab.analysis.groups import Measure, RunGroup
from zoerefine.lab.analysis.pictures.captions import (
    Label,
    facts,
    legend,
    place_labels,
    pseudo_label,
    spread_labels,
)
from zoerefine.lab.analysis.pictures.style import (
    BACKING,
    LAYOUTS,
    PALETTE,
    QUIET,
    Layout,
    is_wide,
    leave_empty,
    save,
    set_log,
    set_steps,
    style,
)
from zoerefine.lab.analysis.report.paper_tables import latex_figure
from zoerefine.lab.analysis.statistics.significance import mean_interval
from zoerefine.lab.runs.record import Collection

FORMATS = ("png", "pdf", "svg")
SHOWN_GROUPS = len(PALETTE)  # colours that can be distinguished; the tables list all groups
FAR_AWAY = 1  # ranges of the scores; a pseudo depth farther away is only a note
MARKED_EPOCHS = 40  # points of a curve; with more, they would merge into a thick line

CURVES, FINALS, COSTS = "curves", "finals", "costs"
PANELS = {CURVES: 4, FINALS: 4, COSTS: 3}  # with their shares of the width or height

Colored = Sequence[tuple[RunGroup, str]]


def draw_overview(
    collection: Collection, groups: list[RunGroup], measure: Measure, out: Path, name: str = "page"
) -> list[Path]:
    """Write overview.png, .pdf and .svg of the best groups, laid out by a row of `LAYOUTS`.

    A layout without a caption in the picture has it in overview.tex, as a LaTeX figure.
    """
    layout = LAYOUTS[name]
    with style(layout):
        figure = overview_figure(collection, groups, measure, layout)
        paths = [save(figure, out / f"overview.{kind}") for kind in FORMATS]
    latex = out / "overview.tex"
    latex.unlink(missing_ok=True)
    if not layout.caption_columns:
        lines = captions(collection, groups, measure)
        write_text(latex, latex_figure(" ".join(lines[0] + lines[1]), wide=layout.columns > 1))
        paths.append(latex)
    return paths


def captions(
    collection: Collection, groups: Sequence[RunGroup], measure: Measure
) -> tuple[list[str], list[str]]:
    """What is drawn, and where the runs come from."""
    return legend(groups[:SHOWN_GROUPS], measure), facts(collection, groups, measure)


def overview_figure(
    collection: Collection,
    groups: list[RunGroup],
    measure: Measure,
    layout: Layout = LAYOUTS["page"],
) -> Any:
    """The figure itself; to be called inside `style(layout)`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = list(zip(groups, PALETTE, strict=False))
    panels = panels_of([group for group, _ in shown], measure)
    ratios = [PANELS[name] for name in panels]
    is_row = layout.columns > 1
    height_in = layout.height_in * (1 if is_row else sum(ratios) / sum(PANELS.values()))
    figure = Figure(figsize=(layout.width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)  # measures texts
    if is_row:
        drawn = figure.subplots(1, len(panels), width_ratios=ratios, squeeze=False)[0]
    else:  # subfigures: the names in one panel narrow no other
        parts: Any = figure.subfigures(len(panels), 1, height_ratios=ratios, squeeze=False)
        drawn = [part.subplots() for part in parts[:, 0]]
    axes = dict(zip(panels, drawn, strict=True))
    if layout.caption_columns:
        lines = captions(collection, groups, measure)
        text = "\n".join(fill("   ".join(line), layout.caption_columns) for line in lines)
        figure.supxlabel(text, fontsize=7, color="0.3", x=0.01, ha="left", linespacing=1.4)
    draw_finals(axes[FINALS], shown, measure, layout)
    ends = draw_curves(axes[CURVES], shown, measure, layout) if CURVES in axes else []
    costs = draw_costs(axes[COSTS], shown, measure) if COSTS in axes else []
    for axis in axes.values():
        axis.spines[["top", "right"]].set_visible(False)
    figure.draw_without_rendering()  # settles the layout, and only then labels are moved
    figure.set_layout_engine("none")
    if CURVES in axes:
        spread_labels(axes[CURVES], ends, layout.label_font)
    if COSTS in axes:
        label_costs(axes[COSTS], costs, layout)
    return figure


def panels_of(groups: Sequence[RunGroup], measure: Measure) -> list[str]:
    """The panels that have something to show, from left to right; the middle one always."""
    has_curves = any(measure.curve(run) for group in groups for run in group.drawn)
    has_costs = bool(group_costs(groups)[0])
    is_empty = {CURVES: not has_curves, FINALS: False, COSTS: not has_costs}
    return [name for name in PANELS if not is_empty[name]]


def draw_curves(axis: Any, groups: Colored, measure: Measure, layout: Layout) -> list[Any]:
    """The measure over epochs or steps, a mean line and its band per group; returns the labels."""
    title = measure.label if measure.metric else "Validation AbsRel"
    axis.set_title(f"{title} while training", loc="left")
    axis.set_xlabel("step" if measure.metric else "epoch")
    ends, means, pseudo, steps = [], [], [], []
    for group, color in groups:
        curves = [curve for run in group.drawn if (curve := measure.curve(run))]
        pseudo += [curve.pseudo for curve in curves if np.isfinite(curve.pseudo)]
        if not curves:
            continue
        epochs, values = align_curves([(c.epochs, c.refined) for c in curves])
        mean = values.mean(0)
        draw_curve(axis, epochs, values, color)
        steps += [epochs[0], epochs[-1]]
        if any(run.pruned for run in group.runs):
            axis.plot(epochs[-1], mean[-1], marker="x", color=color, markersize=9)
        means += mean.tolist()
        ends.append((mean[-1], short_name(group, layout), color))
    if pseudo:
        means.append(float(np.mean(pseudo)))
        axis.axhline(means[-1], color=QUIET, linestyle="--", linewidth=1)
        ends.append((means[-1], "pseudo depth", QUIET))  # the caption has its whole name
    set_value_axis(axis, means, may_be_log=not measure.maximize)
    set_steps(axis, min(steps), max(steps))
    return [
        axis.text(1.02, value, name, transform=axis.get_yaxis_transform(), fontsize="small",
                  color=color, va="center")
        for value, name, color in ends
    ]  # fmt: skip


def draw_curve(axis: Any, epochs: np.ndarray, values: np.ndarray, color: str) -> None:
    """A group's mean over epochs with its interval; values is [runs, epochs]."""
    marker = "o" if len(epochs) <= MARKED_EPOCHS else ""
    axis.plot(epochs, values.mean(0), color=color, marker=marker, markersize=3)
    bounds = [mean_interval(column) for column in values.T]
    known = [bound for bound in bounds if bound is not None]
    if known:
        low, high = zip(*known, strict=True)
        axis.fill_between(epochs, low, high, color=color, alpha=0.2, linewidth=0)
    elif len(values) > 1:
        axis.plot(epochs, values.T, color=color, linewidth=0.6, alpha=0.6)


def set_value_axis(axis: Any, means: Sequence[float], may_be_log: bool) -> None:
    """Limits around the mean curves (a band may be cut), logarithmic where they fall far."""
    low, high = min(means), max(means)
    if may_be_log and (is_wide(means) or (low > 0 and high > 3 * low)):
        set_log(axis, "y", digits=(1, 2, 3, 5, 7))
        axis.set_ylim(low / 1.15, high * 1.15)
    else:
        margin = 0.08 * ((high - low) or abs(high) or 1.0)
        axis.set_ylim(low - margin, high + margin)


def align_curves(curves: list[tuple[list[float], list[float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Curves at every epoch of one of them between the last start and the first end; between its
    own epochs a curve is linear: [epochs], [curves, epochs]."""
    begin, end = max(epochs[0] for epochs, _ in curves), min(epochs[-1] for epochs, _ in curves)
    common = sorted({epoch for epochs, _ in curves for epoch in epochs if begin <= epoch <= end})
    if not common:  # only the longest curve is drawn
        epochs, values = max(curves, key=lambda curve: len(curve[0]))
        return np.array(epochs), np.array([values])
    lines = [np.array(sorted(dict(zip(*curve, strict=True)).items())).T for curve in curves]
    return np.array(common), np.array([np.interp(common, *line) for line in lines])


def short_name(group: RunGroup, layout: Layout) -> str:
    """A group's name beside its curve or point."""
    name = group.label.split(": ")[0] if len(group.runs) == 1 else group.label
    return shortened(name, layout.name_length)


def draw_finals(axis: Any, groups: Colored, measure: Measure, layout: Layout) -> None:
    """Every run's final metric as a point, and each group's mean with its interval."""
    place = f" on {measure.place}" if measure.place else ""
    axis.set_title(f"Final {measure.label}{place}", loc="left")
    axis.set_xlabel(f"{measure.label} ({measure.better} is better)")
    axis.locator_params(axis="x", nbins=4, steps=[1, 2, 5, 10])
    scored = [(group, color) for group, color in groups if len(group.scores)]
    if not scored:
        leave_empty(axis, "no run has a final metric")
        return
    for row, (group, color) in enumerate(scored):
        axis.plot(group.scores, [row] * len(group.scores), "o", color=color, alpha=0.5)
        axis.plot(group.mean, row, "|", color=color, markersize=13, markeredgewidth=2)
        if group.interval:
            axis.plot(group.interval, [row, row], color=color, linewidth=2)
        name = shortened(group.label, 2 * layout.name_length)
        axis.annotate(f"{name}  {metric_text(group.mean)}", (0, row), xytext=(3, 8),
                      xycoords=axis.get_yaxis_transform(), textcoords="offset points",
                      fontsize="small", color=color, bbox=BACKING)  # fmt: skip
    axis.set_yticks([])
    axis.set_ylim(len(scored) - 0.5, -0.9)
    draw_pseudo_level(axis, [group for group, _ in scored], measure)


def draw_pseudo_level(axis: Any, groups: Sequence[RunGroup], measure: Measure) -> None:
    """Mark the pseudo depth's own AbsRel by a line, or by a note where it is far away."""
    metrics = [measure.pseudo(run) for group in groups for run in group.scored]
    known = [value for value in metrics if value is not None]
    shown = [bound for g in groups for bound in (*g.scores, *(g.interval or ()))]
    margin = 0.15 * max(float(np.ptp(shown)), 0.1 * float(np.abs(shown).max()))
    low, high = min(shown) - margin, max(shown) + (margin or 1.0)
    if min(shown) >= 0:
        low = max(0.0, low)
    if known:
        level, label = float(np.mean(known)), pseudo_label(groups)
        if low - FAR_AWAY * (high - low) <= level <= high + FAR_AWAY * (high - low):
            low, high = min(low, level - margin), max(high, level + margin)
            axis.axvline(level, color=QUIET, linestyle="--", linewidth=1)
            side = "right" if level > (low + high) / 2 else "left"
            axis.annotate(label, (level, -0.75), xytext=(-3 if side == "right" else 3, 0),
                          textcoords="offset points", fontsize="small", color=QUIET,
                          ha=side)  # fmt: skip
        else:
            text = f"{label} {level:.4g} \u2192" if level > high else f"\u2190 {label} {level:.4g}"
            axis.text(1, -0.75, text, transform=axis.get_yaxis_transform(), fontsize="small",
                      color=QUIET, ha="right")  # fmt: skip
    axis.set_xlim(low, high)


def draw_costs(axis: Any, groups: Colored, measure: Measure) -> list[tuple[Cost, str]]:
    """Accuracy against cost with the Pareto front of the means; returns the groups drawn."""
    found, unit = group_costs([group for group, _ in groups])
    axis.set_title(f"{measure.label} against cost", loc="left")
    axis.set_xlabel(unit)
    axis.locator_params(nbins=5)
    colors = {group.label: color for group, color in groups}
    costs = [(cost, colors[cost.group.label]) for cost in found]
    for cost, color in costs:
        axis.plot(cost.costs, cost.group.scores, "o", color=color, alpha=0.35, markersize=4)
        axis.plot(cost.mean, cost.group.mean, "o", color=color, markersize=8)
    front = front_of_means(found, measure.sign)
    if len(front) > 1:
        axis.step(*zip(*front, strict=True), where="post", color="0.5", linewidth=1, zorder=0)
    if is_wide([cost.mean for cost in found]):
        set_log(axis, "x")
    axis.margins(0.2)
    values = {value for cost in found for value in cost.costs}
    if len(values) == 1:
        axis.set_xticks([*values], [f"{value:.4g}" for value in values])
    return costs


def label_costs(axis: Any, costs: Sequence[tuple[Cost, str]], layout: Layout) -> None:
    """Name the groups beside their means."""
    labels = [Label(c.mean, c.group.mean, short_name(c.group, layout), color) for c, color in costs]
    means = [(label.x, label.y) for label in labels]
    points = [point for c, _ in costs for point in zip(c.costs, c.group.scores, strict=True)]
    front = [tuple(point) for line in axis.lines for point in steps_of(line)]
    place_labels(axis, labels, [*means, *points, *front], layout.label_font)


def steps_of(line: Any) -> np.ndarray:
    """Points along the front's steps, [n, 2], so that no label covers them; none of other lines."""
    if line.get_drawstyle() != "steps-post":
        return np.empty((0, 2))
    corners = np.repeat(line.get_xydata(), 2, axis=0)
    x, y = corners[1:, 0], corners[:-1, 1]  # across at the old height, then down
    where = np.linspace(0, len(x) - 1, 40 * (len(x) - 1) + 1)
    return np.stack([np.interp(where, np.arange(len(x)), values) for values in (x, y)], 1)
