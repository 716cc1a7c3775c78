"""CMA-ES as a sampler of Optuna, by the package `cmaes`.

Optuna's own CMA-ES keeps its state in the study's database as a pickle, and loads what it finds
there. A database may come from elsewhere, and loading a pickle runs code. Here the state is
computed from the earlier trials, so nothing is stored.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from cmaes import CMA
from optuna import Study
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import intersection_search_space
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

SIGMA = 1 / 6  # of a range: its ends are three standard deviations from its centre

NumberDistribution = FloatDistribution | IntDistribution


class CmaEs(BaseSampler):
    """Adapts the covariance matrix of a normal distribution (Hansen, arXiv:1604.00772).

    It samples the ranges that every trial has; other parameters are random. A generation is
    4 + 3 ln n completed trials, n the number of ranges.

    Raises `ValueError` where a study has several objectives.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = RandomSampler(seed=seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        self._raise_error_if_multi_objective(study)
        shared = intersection_search_space(study.get_trials(deepcopy=False))
        ranges: dict[str, BaseDistribution] = {
            name: one
            for name, one in sorted(shared.items())
            if isinstance(one, NumberDistribution) and not one.single()
        }
        return ranges if len(ranges) > 1 else {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        bounds = np.tile([0.0, 1.0], (len(search_space), 1))
        optimizer = CMA(np.full(len(search_space), 0.5), SIGMA, bounds, seed=self.seed)
        sign = 1 if study.direction == StudyDirection.MINIMIZE else -1
        done = [
            (to_unit(one.params, search_space), sign * (one.value or 0.0))
            for one in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        ]
        size = optimizer.population_size
        for start in range(0, len(done) - size + 1, size):
            optimizer.tell(done[start : start + size])
        return from_unit(optimizer.ask(), search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        self._raise_error_if_multi_objective(study)
        return self.random.sample_independent(study, trial, param_name, param_distribution)


def scale(one: NumberDistribution) -> tuple[float, float]:
    """The ends of a range, logarithmic where it is. With steps, each value has an equal share."""
    half = (one.step or 0) / 2
    low, high = one.low - half, one.high + half
    return (math.log(low), math.log(high)) if one.log else (low, high)


def to_unit(params: Mapping[str, Any], space: Mapping[str, Any]) -> np.ndarray:
    """A trial's ranges between 0 and 1, [n]."""
    found = []
    for name, one in space.items():
        low, high = scale(one)
        value = math.log(params[name]) if one.log else params[name]
        found.append((value - low) / (high - low))
    return np.array(found)


def from_unit(units: np.ndarray, space: Mapping[str, Any]) -> dict[str, Any]:
    """The values of ranges, from numbers between 0 and 1, [n]."""
    params: dict[str, Any] = {}
    for unit, (name, one) in zip(units, space.items(), strict=True):
        low, high = scale(one)
        value = low + float(unit) * (high - low)
        value = math.exp(value) if one.log else value
        if one.step:
            value = one.low + round((value - one.low) / one.step) * one.step
        value = min(max(value, one.low), one.high)
        params[name] = int(value) if isinstance(one, IntDistribution) else value
    return params
