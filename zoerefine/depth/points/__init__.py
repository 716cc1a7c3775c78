"""Metric points: depth measured at a few pixels of a picture, and what it says about the others."""

from zoerefine.depth.data.metric_points import MetricPoints, PointFiles, read_points

__all__ = ["MetricPoints", "PointFiles", "read_points"]

# What other packages import from here; the rest is this package's own.
OPEN = (
    "channels",
    "for_engines",
    "measured",
    "measured_file",
    "room",
    "room_prior",
    "simulate",
    "spread",
)
