"""Metric points: depth measured at a few pixels of a picture, and what it says about the others."""

from zoerefine.points.metric_points import MetricPoints, PointFiles, read_points
from zoerefine.points.spread import spread_points

__all__ = ["MetricPoints", "PointFiles", "read_points", "spread_points"]
