"""From an engine bundle and pictures to refined depth: the command's parts, and `Refiner`."""

from zoerefine.depth.infer.refiner import Refiner

__all__ = ["Refiner"]

# What other packages import from here; the rest is this package's own.
OPEN = (
    "evaluate",
    "inference",
    "pictures",
    "pipeline",
    "point_cloud",
    "refiner",
    "results",
    "room",
    "same_network",
    "sources",
    "video",
)
