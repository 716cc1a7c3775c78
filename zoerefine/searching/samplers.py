"""How the values of new trials are chosen: one function for each name of STUDY.SAMPLER.

A sampler function takes a seed and returns an Optuna sampler. Each trial is sampled by a fresh
sampler, so the function must not keep state. To add one, write it here and add its row to
`SAMPLERS` in `zoerefine/registries.py`.
"""

from optuna.samplers import BaseSampler, RandomSampler, TPESampler


def tpe(seed: int) -> BaseSampler:
    """Tree-structured Parzen estimator, multivariate.

    It is grouped, because the keys of a branch exist only in the trials that chose the branch.
    """
    return TPESampler(seed=seed, multivariate=True, group=True)


def random(seed: int) -> BaseSampler:
    """Independent uniform samples."""
    return RandomSampler(seed=seed)


def grid(seed: int) -> BaseSampler:
    """Every combination once.

    `enqueue_grid` queues all combinations before the first trial begins; a queued trial has its
    values and samples nothing.
    """
    return RandomSampler(seed=seed)
