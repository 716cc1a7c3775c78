"""A sampler that takes another one for each trial, by what the study searches.

The rule follows Optuna's AutoSampler (samplers/auto_sampler of OptunaHub). A program downloads that
one as code when it uses it, so here the rule is written for our own samplers:

- with choices or branches `tpe`, which handles both;
- with ranges alone `gp`, which needs the fewest trials, until its cost grows with their number;
- after that `cmaes`, or `tpe` for a single range, or `nsga2` for several objectives.
"""

from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from zoerefine.registries import SAMPLERS

MANY = 250  # completed trials: fitting a Gaussian process takes a second then


class Auto(BaseSampler):
    """Samples one trial by the sampler that fits."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chosen: BaseSampler | None = None  # at the first call; it may keep state of the trial

    def _choose(self, study: Study) -> BaseSampler:
        if self.chosen is None:
            self.chosen = self._make(study)
        return self.chosen

    def _make(self, study: Study) -> BaseSampler:
        trials = study.get_trials(deepcopy=False)
        completed = sum(one.state == TrialState.COMPLETE for one in trials)
        name = sampler_name(distributions_of(trials), len(study.directions), completed)
        made: BaseSampler = SAMPLERS.load(name)(self.seed)
        return made

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._choose(study).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._choose(study).sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        chosen = self._choose(study)
        return chosen.sample_independent(study, trial, param_name, param_distribution)


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
