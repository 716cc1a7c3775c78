"""A learning rate that falls in a line."""

from zoerefine.depth.training.schedule import ShapeOptions


def linear(done: float, options: ShapeOptions) -> float:
    """From 1 down to 0."""
    return 1 - done
