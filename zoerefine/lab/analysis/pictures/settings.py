"""settings.png: every run's score against each setting that differs, and all settings together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.lab.analysis.group_names import distinct_texts, setting_of, short_keys, shortened
from zoerefine.lab.analysis.groups import Measure
from zoerefine.lab.analysis.pictures.style import BACKING, PALETTE, is_wide, save, set_log, style
from zoerefine.lab.analysis.statistics.importance import Share, compared_keys, numbers, scored_runs
from zoerefine.lab.runs.record import Run

SHOWN_SETTINGS = 6
SHOWN_VALUES = 8  # of a setting that is not a number
MANY_DECADES = 300  # ratio of values from which an axis has one tick a decade
COLORS = "viridis"  # dark: low


def draw_settings(
    runs: Sequence[Run], measure: Measure, shares: Mapping[str, Share], path: Path
) -> bool:
    """Draw the settings, the most important first; returns whether there was anything to draw.

    Args:
        shares: the importances of these runs.
    """
    with style():
        figure = settings_figure(runs, measure, shares)
        if figure is not None:
            save(figure, path, dpi=130)
    return figure is not None


def settings_figure(runs: Sequence[Run], measure: Measure, shares: Mapping[str, Share]) -> Any:
    """The figure itself, or None; to be called inside `style()`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scored = scored_runs(runs, measure)
    keys = sorted(compared_keys(runs, measure), key=lambda key: -share_of(shares, key))
    keys = keys[:SHOWN_SETTINGS]
    if len(scored) < 2 or not keys:
        return None
    scores = np.array([measure.score(run) or 0.0 for run in scored])
    figure = Figure(figsize=(max(2.6 * len(keys), 6) + 0.8, 6), layout="constrained")
    FigureCanvasAgg(figure)  # measures texts
    parts: Any = figure.subfigures(2, 1)
    upper, lower = parts
    axes = np.atleast_1d(upper.subplots(1, len(keys), sharey=True))
    for axis, key in zip(axes, keys, strict=True):
        share = f"\nimportance {shares[key]}" if key in shares else ""
        axis.set_title(f"{shortened(key, 36)}{share}", fontsize=8)
        draw_setting(axis, [setting_of(run, key) for run in scored], scores, measure)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"{measure.label} ({measure.better} is better)", fontsize=8)
    draw_parallel(lower, scored, keys, scores, measure)
    return figure


def share_of(shares: Mapping[str, Share], key: str) -> float:
    """A setting's importance; 0 where it is not known."""
    return shares[key].value if key in shares else 0.0


def draw_setting(axis: Any, values: Sequence[Any], scores: np.ndarray, measure: Measure) -> None:
    """One setting's values against the scores, float [runs]."""
    axis.tick_params(labelsize=8)
    found = numbers(values)
    if found is not None:
        axis.plot(found, scores, "o", color=PALETTE[0], alpha=0.6)
        set_number_ticks(axis, found)
        return
    columns, names = columns_by_score(distinct_texts(values), measure.sign * scores)
    axis.plot(columns, scores, "o", color=PALETTE[0], alpha=0.6)
    axis.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor",
                    fontsize=7)  # fmt: skip
    axis.set_xlim(-0.7, len(names) - 0.3)


def set_number_ticks(axis: Any, values: Sequence[float]) -> None:
    """Few ticks, so that no label covers the next; logarithmic where the values differ much."""
    if is_wide(values):
        decades = max(values) / min(values) > MANY_DECADES
        set_log(axis, "x", digits=(1,) if decades else (1, 3), most=4)
    else:
        axis.ticklabel_format(axis="x", useOffset=False, style="plain")
        axis.locator_params(axis="x", nbins=3)


def columns_by_score(texts: Sequence[str], costs: np.ndarray) -> tuple[list[int], list[str]]:
    """The column of each run, and the columns' names, the best mean cost first.

    Beyond SHOWN_VALUES columns, the last one holds all other values.
    """
    means = {text: costs[[other == text for other in texts]].mean() for text in set(texts)}
    names = sorted(means, key=lambda text: (means[text], text))
    if len(names) > SHOWN_VALUES:
        others = len(names) - SHOWN_VALUES + 1
        columns = [min(names.index(text), SHOWN_VALUES - 1) for text in texts]
        return columns, [*names[: SHOWN_VALUES - 1], f"{others} others"]
    return [names.index(text) for text in texts], names


def draw_parallel(
    figure: Any, runs: Sequence[Run], keys: Sequence[str], scores: np.ndarray, measure: Measure
) -> None:
    """Parallel coordinates: a line per run through its settings to its score, with a colour key."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axis = figure.subplots()
    columns = [*([setting_of(run, key) for run in runs] for key in keys), scores.tolist()]
    heights = np.array([_heights(column) for column in columns])  # [columns, runs]
    scale = Normalize(min(scores), max(scores))
    for run in np.argsort(scores)[:: -measure.sign]:
        color = colormaps[COLORS](0.95 * scale(scores[run]))
        axis.plot(heights[:, run], color=color, alpha=0.8, linewidth=1.5)
    labels = short_keys(keys)
    names = [*(shortened(labels[key], 24) for key in keys), measure.label]
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_yticks([])
    for column, values in enumerate(columns):
        label_values(axis, column, values)
        axis.axvline(column, color="0.8", linewidth=0.8, zorder=0)
    axis.set_ylim(-0.2, 1.2)
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    bar = figure.colorbar(ScalarMappable(scale, COLORS), ax=axis, label=measure.label, shrink=0.8)
    bar.ax.tick_params(labelsize=7)


def label_values(axis: Any, column: int, values: Sequence[Any]) -> None:
    """Name the lowest and the highest value of a column; of few names, all of them."""
    names = dict(sorted(zip(_heights(values), distinct_texts(values), strict=True)))
    if numbers(values) is None and len(names) <= SHOWN_VALUES:
        for height, name in names.items():
            axis.text(column + 0.01, height, name, fontsize=7, va="center", bbox=BACKING)
        return
    for height, place, side in ((0.0, -0.04, "top"), (max(names), 1.04, "bottom")):
        axis.text(column, place, names[height], fontsize=7, ha="center", va=side)


def _heights(values: Sequence[Any]) -> list[float]:
    """Places in 0..1: numbers by size (by logarithm over large ranges), other values by name."""
    found = numbers(values)
    if found is None:
        texts = distinct_texts(values)
        names = sorted(set(texts))
        heights = np.array([names.index(text) for text in texts], np.float64)
    else:
        heights = np.log(found) if is_wide(found) else np.array(found)
    span = np.ptp(heights) or 1.0
    return ((heights - heights.min()) / span).tolist()
