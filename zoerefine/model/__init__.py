"""Refiners: networks that correct metric depth."""

from zoerefine.model.build import build_refiner
from zoerefine.model.refiner import RefinerNetwork

__all__ = ["RefinerNetwork", "build_refiner"]
