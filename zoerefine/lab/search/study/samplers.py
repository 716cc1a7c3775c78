"""How the values of new trials are chosen: one function for each name of STUDY.SAMPLER.

A sampler function takes a seed and returns an Optuna sampler. Each trial is sampled by a fresh
sampler, so the function must not keep state. To add one, write it here and add its row to
`SAMPLERS` in `zoerefine/base/registries.py`.
"""

import json
import math
from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.search_space import intersection_search_space
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from zoerefine.base.registries import SAMPLERS

# A sampler that takes another one for each trial, by what the study searches.
#
# The rule follows Optuna's AutoSampler (samplers/auto_sampler of OptunaHub). A program downloads
# that one as code when it uses it, so here the rule is written for our own samplers:
#
# - with choices or branches `tpe`, which handles both;
# - with ranges alone `gp`, which needs the fewest trials, until its cost grows with their number;
# - after that `cmaes`, or `tpe` for a single range, or `nsga2` for several objectives.

MANY = 250  # completed trials: fitting a Gaussian process takes a second then


class Delegating(BaseSampler):
    """Samples one trial by another sampler."""

    def sampler_of(self, study: optuna.Study) -> BaseSampler:
        """The other sampler. It may keep state of the trial, so it is always the same one."""
        raise NotImplementedError

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self.sampler_of(study).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.sampler_of(study).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        return self.sampler_of(study).sample_independent(
            study, trial, param_name, param_distribution
        )


class Auto(Delegating):
    """Samples one trial by the sampler that fits."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chosen: BaseSampler | None = None

    def sampler_of(self, study: optuna.Study) -> BaseSampler:
        if self.chosen is None:
            trials = study.get_trials(deepcopy=False)
            completed = sum(one.state == TrialState.COMPLETE for one in trials)
            name = sampler_name(distributions_of(trials), len(study.directions), completed)
            self.chosen = SAMPLERS.load(name)(self.seed)
        return self.chosen


def distributions_of(trials: list[FrozenTrial]) -> dict[str, BaseDistribution]:
    """What the trials have drawn from, by parameter; values that never vary are left out."""
    found = {name: one for trial in trials for name, one in trial.distributions.items()}
    return {name: one for name, one in found.items() if not one.single()}


def sampler_name(space: dict[str, BaseDistribution], objectives: int, completed: int) -> str:
    """The sampler for the next trial, after so many completed ones."""
    # A branch is a choice, too.
    only_ranges = not any(isinstance(one, CategoricalDistribution) for one in space.values())
    if completed < MANY:
        return "gp" if only_ranges else "tpe"
    if objectives > 1:
        return "nsga2"
    return "cmaes" if only_ranges and len(space) > 1 else "tpe"


POPULATION = 20  # of `nsga2`; Optuna's 50 are more trials than most studies have


def tpe(seed: int) -> BaseSampler:
    """Tree-structured Parzen estimator, multivariate.

    It is grouped, because the keys of a branch exist only in the trials that chose the branch.
    """
    return TPESampler(seed=seed, multivariate=True, group=True)


def gp(seed: int) -> BaseSampler:
    """Gaussian process, for few and slow trials of ranges. Needs SciPy.

    The first ten trials are random, and so are the keys of branches.
    """
    return ResumableGP(seed=seed, warn_independent_sampling=False)


def cmaes(seed: int) -> BaseSampler:
    """Covariance matrix adaptation, for many trials of ranges. Needs the package `cmaes`."""
    return CmaEs(seed)


def nsga2(seed: int) -> BaseSampler:
    """The genetic algorithm NSGA-II, for many trials with several objectives."""
    return NSGAIISampler(seed=seed, population_size=POPULATION)


def auto(seed: int) -> BaseSampler:
    """One of the samplers above, by the space and the number of trials (`Auto`)."""
    return Auto(seed)


def random(seed: int) -> BaseSampler:
    """Independent uniform samples."""
    return RandomSampler(seed=seed)


def grid(seed: int) -> BaseSampler:
    """Every combination once.

    `enqueue` queues all combinations before the first trial begins; a queued trial has its
    values and samples nothing.
    """
    return RandomSampler(seed=seed)


class ResumableGP(GPSampler):
    """A trial whose worker was killed while it got its values gets the same ones again.

    Optuna's sampler records what it sampled, and keeps away from what running trials have. It would
    keep away from the trial's own values.
    """

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        recorded = (trial.system_attrs.get(f"gp:relative_params:{part}", "") for part in count())
        if text := "".join(takewhile(bool, recorded)):
            sampled: dict[str, Any] = json.loads(text)
            return sampled
        return super().sample_relative(study, trial, search_space)


SIGMA = 1 / 6  # of a range: its ends are three standard deviations from its centre

NumberDistribution = FloatDistribution | IntDistribution


class CmaEs(BaseSampler):
    """Adapts the covariance matrix of a normal distribution (Hansen, arXiv:1604.00772).

    Optuna's own CMA-ES keeps its state in the study's database as a pickle, and loads what it finds
    there. A database may come from elsewhere, and loading a pickle runs code. Here the state is
    computed from the earlier trials, so nothing is stored.

    It samples the ranges that every trial has; other parameters are random. A generation is
    4 + 3 ln n completed trials, n the number of ranges.

    Raises `ValueError` where a study has several objectives.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = RandomSampler(seed=seed)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
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
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        from cmaes import CMA  # of the extra `samplers`

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
        study: optuna.Study,
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
