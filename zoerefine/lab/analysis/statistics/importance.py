"""How much each setting mattered for the final metric."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoerefine.base.yaml.equal_values import exact_text
from zoerefine.lab.analysis.groups import Measure, finished_or_all
from zoerefine.lab.analysis.pictures.style import is_wide
from zoerefine.lab.runs.filter import number_of
from zoerefine.lab.runs.record import Run, differing_keys, finite_number

SAME_HALVES = "Target and region quantiles select the same"  # how Optuna's warning begins
ENOUGH_FOR_IMPORTANCE = 8  # runs; with fewer an importance would be noise
ENOUGH_TO_BE_SURE = 50  # runs; with fewer it is a rough estimate
GOOD = 0.5  # share of the runs that are the good ones
RUNS_HALVED = range(2 * ENOUGH_FOR_IMPORTANCE, 201)  # number of runs whose shares get an interval
HALVES = 20  # random ones
BOUNDS = 0.1, 0.9  # of the interval


@dataclass(frozen=True)
class Share:
    """A setting's share of all settings' importance.

    Attributes:
        low, high: all runs and 80% of random halves of them give a share between these; None for
            a single setting, and for fewer or more runs than RUNS_HALVED.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.0%}"
        return f"{self.value:.0%} ({100 * self.low:.0f} to {self.high:.0%})"


def importances(runs: Sequence[Run], measure: Measure) -> dict[str, Share]:
    """How much each differing setting decides whether a run is in the better half.

    PED-ANOVA (Watanabe 2023), with the better half as its target: its usual target, the best
    tenth, is three of 30 runs. The largest share comes first. The shares add up to 1. Empty for
    fewer than ENOUGH_FOR_IMPORTANCE runs, and where so many are equal that none is better.
    """
    scored, keys = scored_runs(runs, measure), compared_keys(runs, measure)
    if len(scored) < ENOUGH_FOR_IMPORTANCE or not keys:
        return {}
    import optuna

    spaces = {key: _space([run.settings.get(key) for run in scored]) for key in keys}
    trials = [
        optuna.trial.create_trial(
            params={key: _value(run.settings.get(key), spaces[key]) for key in keys},
            distributions=spaces,
            value=measure.sign * (measure.score(run) or 0.0),
        )
        for run in scored
    ]
    shares = _shares(trials)
    if len(trials) not in RUNS_HALVED or len(keys) == 1:
        return {key: Share(value) for key, value in shares.items()}
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(trials)) for _ in range(HALVES)]
    drawn = [_shares([trials[i] for i in order[: len(order) // 2]]) for order in orders]
    if not all(drawn):
        return {key: Share(value) for key, value in shares.items()}
    bounds = {key: np.quantile([one[key] for one in drawn], BOUNDS).tolist() for key in keys}
    return {
        key: Share(value, min(value, bounds[key][0]), max(value, bounds[key][1]))
        for key, value in shares.items()
    }


def _shares(trials: Sequence[Any]) -> dict[str, float]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.add_trials(trials)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=GOOD)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", SAME_HALVES, UserWarning)
        try:
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        except UserWarning:  # with so many equal scores there is no better half
            return {}
    return {key: float(value) for key, value in found.items()}


def scored_runs(runs: Sequence[Run], measure: Measure) -> list[Run]:
    """The whole runs with a final metric; where none is whole, all, as far as they got."""
    return finished_or_all([run for run in runs if measure.score(run) is not None])


def compared_keys(runs: Sequence[Run], measure: Measure) -> list[str]:
    """The settings, except the data's, in which the scored runs differ."""
    keys = differing_keys(scored_runs(runs, measure))
    return [key for key in keys if not key.startswith("DATA.")]


def numbers(values: Sequence[Any]) -> list[float] | None:
    """The values as floats, also of words such as 0.10; None if one is not a finite number."""
    read = [number_of(value) if isinstance(value, str) else value for value in values]
    found = [finite_number(value) for value in read]
    return [value for value in found if value is not None] if None not in found else None


def _space(values: Sequence[Any]) -> Any:
    """The range of numbers, or the choices of anything else, as the runs show it."""
    import optuna

    found = numbers(values)
    if found is None:
        return optuna.distributions.CategoricalDistribution(sorted(set(map(exact_text, values))))
    return optuna.distributions.FloatDistribution(min(found), max(found), log=is_wide(found))


def _value(value: Any, space: Any) -> Any:
    return exact_text(value) if hasattr(space, "choices") else float(value)
