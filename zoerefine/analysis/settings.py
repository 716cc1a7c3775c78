"""What made a run good: how much each setting mattered, and its scores value by value."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.analysis.collect import Run, differing
from zoerefine.analysis.groups import METRIC, brief
from zoerefine.analysis.plots import PALETTE
from zoerefine.files import replacing

ENOUGH = 8  # runs below which an importance would be noise


def importances(runs: Sequence[Run], split: str) -> dict[str, float]:
    """Each differing setting's share of the variation of the score (PED-ANOVA, Watanabe 2023).

    Empty where there are too few runs to say. The shares add up to 1.
    """
    scored = [run for run in runs if run.metric(split, "refined", METRIC) is not None]
    keys = [key for key in differing(scored) if not key.startswith("DATA.")]
    if len(scored) < ENOUGH or not keys:
        return {}
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    spaces = {key: _space(scored, key) for key in keys}
    for run in scored:
        study.add_trial(
            optuna.trial.create_trial(
                params={key: _value(run.settings.get(key), spaces[key]) for key in keys},
                distributions=spaces,
                value=run.metric(split, "refined", METRIC),
            )
        )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {key: float(value) for key, value in found.items()}


def _space(runs: Sequence[Run], key: str) -> Any:
    """The range of a number, or the choices of anything else, as these runs show it."""
    import optuna

    values = [run.settings.get(key) for run in runs]
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        numbers = [float(v) for v in values if isinstance(v, int | float)]
        log = min(numbers) > 0 and max(numbers) / min(numbers) > 10
        return optuna.distributions.FloatDistribution(min(numbers), max(numbers), log=log)
    return optuna.distributions.CategoricalDistribution(sorted({str(v) for v in values}))


def _value(value: Any, space: Any) -> Any:
    return str(value) if hasattr(space, "choices") else float(value)


def draw_settings(runs: Sequence[Run], split: str, path: Path) -> bool:
    """Slices: each setting's values against the score, most important first.

    Returns whether there was anything to draw.
    """
    shares = importances(runs, split)
    scored = [run for run in runs if run.metric(split, "refined", METRIC) is not None]
    keys = sorted(
        (key for key in differing(scored) if not key.startswith("DATA.")),
        key=lambda key: -shares.get(key, 0),
    )[:6]
    if len(scored) < 2 or not keys:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(2.6 * len(keys), 6) + 0.8, 5.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1)
    upper, lower = parts
    axes = np.atleast_1d(upper.subplots(1, len(keys), sharey=True))
    scores = [run.metric(split, "refined", METRIC) for run in scored]
    for axis, key in zip(axes, keys, strict=True):
        share = f"\n{shares[key]:.0%} of the variation" if key in shares else ""
        axis.set_title(f"{key}{share}", fontsize=8)
        _slice(axis, [run.settings.get(key) for run in scored], scores)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("AbsRel")
    draw_parallel(lower.subplots(), scored, keys, scores)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    return True


def draw_parallel(
    axis: Any, runs: Sequence[Run], keys: Sequence[str], scores: Sequence[Any]
) -> None:
    """Parallel coordinates: a line a run through its settings to its score, the best ones dark."""
    from matplotlib import colormaps

    columns = [[run.settings.get(key) for run in runs] for key in keys]
    heights = np.array([_heights(column) for column in [*columns, scores]])  # [columns, runs]
    rank = np.argsort(np.argsort(scores)) / max(1, len(runs) - 1)
    for run in np.argsort(rank)[::-1]:
        color = colormaps["viridis"](0.95 * rank[run])
        axis.plot(heights[:, run], color=color, alpha=0.8, linewidth=1.5)
    names = [*(key.rpartition(".")[2] for key in keys), "AbsRel"]
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_yticks([])
    for column, values in enumerate([*columns, scores]):
        ends = [values[i] for i in np.argsort(_heights(values), kind="stable")]
        for height, value in ((-0.04, ends[0]), (1.04, ends[-1])):
            axis.text(column, height, brief(value), fontsize=7, ha="center",
                      va="top" if height < 0 else "bottom")  # fmt: skip
        axis.axvline(column, color="0.8", linewidth=0.8, zorder=0)
    axis.set_ylim(-0.2, 1.2)
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)


def _heights(values: Sequence[Any]) -> list[float]:
    """Places in 0..1: numbers by size (by logarithm over large ranges), anything else by name."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        numbers = np.array(values, np.float64)
        if numbers.min() > 0 and numbers.max() / numbers.min() > 10:
            numbers = np.log(numbers)
    else:
        names = sorted({str(v) for v in values})
        numbers = np.array([names.index(str(v)) for v in values], np.float64)
    span = np.ptp(numbers) or 1.0
    return ((numbers - numbers.min()) / span).tolist()


def _slice(axis: Any, values: Sequence[Any], scores: Sequence[Any]) -> None:
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        axis.plot(values, scores, "o", color=PALETTE[0], alpha=0.6)
        if min(values) > 0 and max(values) / min(values) > 10:
            axis.set_xscale("log")
        return
    names = sorted({brief(v) for v in values})
    axis.plot([names.index(brief(v)) for v in values], scores, "o", color=PALETTE[0], alpha=0.6)
    axis.set_xticks(range(len(names)), names, fontsize=7, rotation=20)
