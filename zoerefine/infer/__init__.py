"""From an engine bundle and pictures to refined depth: the command's parts, and `Refiner`."""

from zoerefine.infer.refiner import Refiner

__all__ = ["Refiner"]
