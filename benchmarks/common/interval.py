"""Confidence intervals of means over a few seeds."""

import statistics
from collections.abc import Sequence

T_95 = {2: 12.71, 3: 4.303, 5: 2.776}  # Student's t, two sides of 95%, by the number of values


def half_width(values: Sequence[float]) -> float:
    """Half of the mean's 95% confidence interval, from 2, 3 or 5 values."""
    return T_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
