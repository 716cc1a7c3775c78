"""settings.png: every run's score against each setting that differs, and all settings together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.analysis.figure_style import PALETTE, is_wide, save, set_log, style
from zoerefine.analysis.group_names import distinct_texts, format_value, short_keys, shortened
from zoerefine.analysis.importance import compared_keys, importances, numbers, scored_runs
from zoerefine.analysis.measure import Measure
from zoerefine.analysis.run_record import Run

SHOWN_SETTINGS = 6
COLORS = "viridis"  # dark: low


def draw_settings(runs: Sequence[Run], measure: Measure, path: Path) -> bool:
    """Draw the settings, the most important first; returns whether there was anything to draw."""
    from matplotlib.figure import Figure

    shares = importances(runs, measure)
    scored = scored_runs(runs, measure)
    keys = sorted(compared_keys(runs, measure), key=lambda key: -shares.get(key, 0))
    keys = keys[:SHOWN_SETTINGS]
    if len(scored) < 2 or not keys:
        return False
    scores = [measure.score(run) or 0.0 for run in scored]
    with style():
        figure = Figure(figsize=(max(2.6 * len(keys), 6) + 0.8, 5.6), layout="constrained")
        parts: Any = figure.subfigures(2, 1)
        upper, lower = parts
        axes = np.atleast_1d(upper.subplots(1, len(keys), sharey=True))
        for axis, key in zip(axes, keys, strict=True):
            share = f"\n{shares[key]:.0%} of the variation" if key in shares else ""
            axis.set_title(f"{shortened(key, 40)}{share}", fontsize=8)
            draw_setting(axis, [run.settings.get(key) for run in scored], scores)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel(f"{measure.label} ({measure.better} is better)")
        draw_parallel(lower, scored, keys, scores, measure)
        save(figure, path, dpi=130)
    return True


def draw_setting(axis: Any, values: Sequence[Any], scores: Sequence[float]) -> None:
    """One setting's values against the scores."""
    found = numbers(values)
    axis.tick_params(labelsize=8)
    if found is not None:
        axis.plot(found, scores, "o", color=PALETTE[0], alpha=0.6)
        if is_wide(found):
            set_log(axis, "x")
        else:
            axis.locator_params(axis="x", nbins=4)
        return
    texts = distinct_texts(values)
    names = sorted(set(texts))
    axis.plot([names.index(text) for text in texts], scores, "o", color=PALETTE[0], alpha=0.6)
    axis.set_xticks(range(len(names)), names, rotation=20)


def draw_parallel(
    figure: Any,
    runs: Sequence[Run],
    keys: Sequence[str],
    scores: Sequence[float],
    measure: Measure,
) -> None:
    """Parallel coordinates: a line per run through its settings to its score, with a colour key."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axis = figure.subplots()
    columns = [[run.settings.get(key) for run in runs] for key in keys]
    heights = np.array([_heights(column) for column in [*columns, scores]])  # [columns, runs]
    scale = Normalize(min(scores), max(scores))
    for run in np.argsort(scores)[:: -measure.sign]:
        color = colormaps[COLORS](0.95 * scale(scores[run]))
        axis.plot(heights[:, run], color=color, alpha=0.8, linewidth=1.5)
    labels = short_keys(keys)
    names = [*(shortened(labels[key], 24) for key in keys), measure.label]
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_yticks([])
    for column, values in enumerate([*columns, scores]):
        ends = [values[i] for i in np.argsort(_heights(values), kind="stable")]
        for height, value in ((-0.04, ends[0]), (1.04, ends[-1])):
            axis.text(column, height, format_value(value), fontsize=7, ha="center",
                      va="top" if height < 0 else "bottom")  # fmt: skip
        axis.axvline(column, color="0.8", linewidth=0.8, zorder=0)
    axis.set_ylim(-0.2, 1.2)
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    bar = figure.colorbar(ScalarMappable(scale, COLORS), ax=axis, label=measure.label, shrink=0.8)
    bar.ax.tick_params(labelsize=7)


def _heights(values: Sequence[Any]) -> list[float]:
    """Places in 0..1: numbers by size (by logarithm over large ranges), other values by name."""
    found = numbers(values)
    if found is None:
        names = sorted({str(v) for v in values})
        heights = np.array([names.index(str(v)) for v in values], np.float64)
    else:
        heights = np.log(found) if is_wide(found) else np.array(found)
    span = np.ptp(heights) or 1.0
    return ((heights - heights.min()) / span).tolist()
