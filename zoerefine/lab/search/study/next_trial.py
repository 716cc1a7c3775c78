"""The next trial of a study: queued values first, then a sampler's, and untried ones where it
repeats itself.
"""

from collections.abc import Callable
from hashlib import sha256
from itertools import takewhile
from random import Random
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from zoerefine.base.registries import SAMPLERS
from zoerefine.lab.search.space.space import MAX_LISTED, Values, combinations, size_of, suggest
from zoerefine.lab.search.study.samplers import Delegating
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.study.trials import (
    is_duplicate,
    params_key,
    skipped_numbers,
    without_duplicates,
)

FAIL = TrialState.FAIL
MAX_DUPLICATES = 3  # samples in a row that were tried before; then an untried combination is taken
MAX_RANDOM = 100  # random samples of a space that is too large to list


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
