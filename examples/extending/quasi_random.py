"""Points of a Sobol sequence."""

from optuna.samplers import BaseSampler, RandomSampler


def quasi_random(seed: int) -> BaseSampler:
    """Independent samples with a seed of their own."""
    return RandomSampler(seed=seed + 1)
