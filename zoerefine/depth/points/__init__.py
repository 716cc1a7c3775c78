"""Metric points: depth measured at a few pixels of a picture, and what it says about the others."""

from typing import Any

from zoerefine.depth.data.metric_points import MetricPoints, PointFiles, read_points

__all__ = ["MetricPoints", "PointFiles", "read_points", "spread_points"]


def __getattr__(name: str) -> Any:
    if name == "spread_points":  # torch comes with it, and reading points does not need torch
        from zoerefine.depth.points.spread import spread_points

        return spread_points
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
