"""The channels of a picture as a refiner sees it: RGB and, if it takes points, what they say.

Importing this file does not import torch.
"""

RGB = 3
NO_CHANGE, CHANGE_UNITS = 128, (64, 127)  # bytes: changes of log depth, what is left of them
NO_HINTS = 0, NO_CHANGE, 0, NO_CHANGE  # bytes without points, in the order of `spread.hints_of`
HINTS = len(NO_HINTS)


def channels_of(takes_points: bool) -> int:
    """How many channels an engine's pictures have."""
    return RGB + HINTS * takes_points
