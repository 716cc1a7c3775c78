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

    figure = Figure(figsize=(2.6 * len(keys) + 0.8, 2.8), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(keys), sharey=True))
    scores = [run.metric(split, "refined", METRIC) for run in scored]
    for axis, key in zip(axes, keys, strict=True):
        share = f"\n{shares[key]:.0%} of the variation" if key in shares else ""
        axis.set_title(f"{key}{share}", fontsize=8)
        _slice(axis, [run.settings.get(key) for run in scored], scores)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("AbsRel")
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    return True


def _slice(axis: Any, values: Sequence[Any], scores: Sequence[Any]) -> None:
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        axis.plot(values, scores, "o", color=PALETTE[0], alpha=0.6)
        if min(values) > 0 and max(values) / min(values) > 10:
            axis.set_xscale("log")
        return
    names = sorted({brief(v) for v in values})
    axis.plot([names.index(brief(v)) for v in values], scores, "o", color=PALETTE[0], alpha=0.6)
    axis.set_xticks(range(len(names)), names, fontsize=7, rotation=20)
