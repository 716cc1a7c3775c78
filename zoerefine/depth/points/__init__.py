"""Metric points: depth measured at a few pixels of a picture, and what it says about the others.

The channels of a picture as a refiner sees it: RGB and, if it takes points, what they say.
"""

from zoerefine.depth.data.metric_points import MetricPoints, PointFiles, read_points

__all__ = ["MetricPoints", "PointFiles", "channels_of", "read_points"]

# What other packages import from here; the rest is this package's own.
OPEN = (
    "for_engines",
    "measured",
    "measured_file",
    "refiner_choice",
    "room",
    "room_prior",
    "simulate",
    "spread",
)

RGB = 3
NO_CHANGE, CHANGE_UNITS = 128, (64, 127)  # bytes: changes of log depth, what is left of them
NO_HINTS = 0, NO_CHANGE, 0, NO_CHANGE  # bytes without points, in the order of `spread.hints_of`
HINTS = len(NO_HINTS)


def channels_of(takes_points: bool) -> int:
    """How many channels an engine's pictures have."""
    return RGB + HINTS * takes_points
