"""How the values of new trials are chosen: one function for each name of STUDY.SAMPLER.

A sampler function takes a seed and returns an Optuna sampler. Each trial is sampled by a fresh
sampler, so the function must not keep state. To add one, write it here and add its row to
`SAMPLERS` in `zoerefine/base/registries.py`.

`next_trial`, last, takes queued values first, and untried ones where a sampler repeats itself.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from itertools import count, takewhile
from random import Random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from zoerefine.base.registries import SAMPLERS
from zoerefine.lab.search.space.space import MAX_LISTED, Values, combinations, size_of, suggest
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import (
    is_duplicate,
    params_key,
    skipped_numbers,
    without_duplicates,
)

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
    from zoerefine.lab.search.study.cma_es import CmaEs

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


class TrialSampler(Delegating):
    """Samples one trial: its values follow from the study's seed, its number and earlier trials.

    They do not depend on what was sampled before in the process. A value that is sampled alone
    follows from its name, too: where a worker is killed between two values of a trial, the next
    worker samples those that are missing as the first one would have.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int, number: int) -> None:
        self.make, self.seed, self.number = make, seed, number
        self.inner = make(self._seed_of(""))

    def _seed_of(self, name: str) -> int:
        """32 bits for a parameter; for the empty name, of what is sampled together."""
        digest = sha256(f"{self.seed} {self.number} {name}".encode()).digest()
        return int.from_bytes(digest[:4], "big")

    def sampler_of(self, study: optuna.Study) -> BaseSampler:
        return self.inner

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        sampler = self.make(self._seed_of(param_name))
        return sampler.sample_independent(study, trial, param_name, param_distribution)


FAIL = TrialState.FAIL
MAX_DUPLICATES = 3  # samples in a row that were tried before; then an untried combination is taken
MAX_RANDOM = 100  # random samples of a space that is too large to list


def next_trial(study: Study) -> tuple[optuna.Trial, Values] | None:
    """Begin a trial and return it with its config values; the caller holds the study's lock.

    Returns None where every combination has been tried. A worker that is killed here and called
    again ends with the same trial: duplicates are counted in the database, not by the worker.
    """
    for _ in range(MAX_DUPLICATES):
        if _duplicates_at_end(study) >= MAX_DUPLICATES:
            break
        if found := _ask(study, study.options.SAMPLER):
            return found
    if size_of(study.space) > MAX_LISTED:  # a sampler may stay at one point, such as a corner
        attempts = (_ask(study, "random") for _ in range(MAX_RANDOM))
        return next(filter(None, attempts), None)
    untried = _untried(study)
    if untried is None:
        return None
    study.optuna.enqueue_trial(untried)
    return _ask(study, study.options.SAMPLER)


def _duplicates_at_end(study: Study) -> int:
    """How many of the last trials in a row were duplicates."""
    last = reversed(study.optuna.get_trials(deepcopy=False))
    return sum(1 for _ in takewhile(lambda one: one.state == FAIL and is_duplicate(one), last))


def _ask(study: Study, sampler: str) -> tuple[optuna.Trial, Values] | None:
    """A queued trial, or one by a sampler; None where its values were tried before."""
    earlier = study.optuna.get_trials(deepcopy=False)
    waiting = (one.number for one in earlier if one.state == TrialState.WAITING)
    number = next(waiting, len(earlier)) + skipped_numbers(study.optuna)
    study.optuna.sampler = TrialSampler(SAMPLERS.load(sampler), study.subject.seed, number)
    trial = study.optuna.ask()
    values = suggest(study.space, trial)
    key = params_key(trial.params)
    for one in without_duplicates(earlier):
        if one.state != TrialState.WAITING and params_key(one.params) == key:
            trial.set_user_attr("duplicate_of", one.number)
            trial.set_user_attr("reason", f"same values as trial {one.number}: not run")
            study.optuna.tell(trial, state=TrialState.FAIL)
            return None
    return trial, values


def _untried(study: Study) -> Values | None:
    """A random combination of a listed space that was not tried; None where there is none."""
    tried = {params_key(trial.params) for trial in study.trials()}
    left = [one for one in combinations(study.space) if params_key(one) not in tried]
    return Random(len(tried)).choice(left) if left else None
