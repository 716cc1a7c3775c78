"""How much each setting mattered: its share of the variation of the final metric."""

from collections.abc import Sequence
from typing import Any

from zoerefine.analysis.figure_style import is_wide
from zoerefine.analysis.measure import Measure
from zoerefine.analysis.run_record import Run, differing_keys, finite_number

ENOUGH_FOR_IMPORTANCE = 8  # runs; with fewer an importance would be noise
ENOUGH_TO_BE_SURE = 50  # runs; with fewer it is a rough estimate


def importances(runs: Sequence[Run], measure: Measure) -> dict[str, float]:
    """Each differing setting's share of the variation of the score (PED-ANOVA, Watanabe 2023).

    Empty for fewer than ENOUGH_FOR_IMPORTANCE runs. The shares add up to 1.
    """
    scored, keys = scored_runs(runs, measure), compared_keys(runs, measure)
    if len(scored) < ENOUGH_FOR_IMPORTANCE or not keys:
        return {}
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    spaces = {key: _space([run.settings.get(key) for run in scored]) for key in keys}
    for run in scored:
        study.add_trial(
            optuna.trial.create_trial(
                params={key: _value(run.settings.get(key), spaces[key]) for key in keys},
                distributions=spaces,
                value=measure.sign * (measure.score(run) or 0.0),
            )
        )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {key: float(value) for key, value in found.items()}


def scored_runs(runs: Sequence[Run], measure: Measure) -> list[Run]:
    """The runs with a final metric."""
    return [run for run in runs if measure.score(run) is not None]


def compared_keys(runs: Sequence[Run], measure: Measure) -> list[str]:
    """The settings, except the data's, in which the scored runs differ."""
    keys = differing_keys(scored_runs(runs, measure))
    return [key for key in keys if not key.startswith("DATA.")]


def numbers(values: Sequence[Any]) -> list[float] | None:
    """The values as floats; None if one of them is not a finite number."""
    found = [finite_number(value) for value in values]
    return [value for value in found if value is not None] if None not in found else None


def _space(values: Sequence[Any]) -> Any:
    """The range of numbers, or the choices of anything else, as the runs show it."""
    import optuna

    found = numbers(values)
    if found is None:
        return optuna.distributions.CategoricalDistribution(sorted({str(v) for v in values}))
    return optuna.distributions.FloatDistribution(min(found), max(found), log=is_wide(found))


def _value(value: Any, space: Any) -> Any:
    return str(value) if hasattr(space, "choices") else float(value)
