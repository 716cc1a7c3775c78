"""A learning rate that falls in a line."""

from zoerefine.base.config.training_keys import TrainKeys


def linear(done: float, options: TrainKeys) -> float:
    """From 1 down to 0."""
    return 1 - done
