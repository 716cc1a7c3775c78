"""Inference without a refiner: pseudo depth that metric points alone correct."""

import numpy as np

from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.exporting.engine import tensors_by_arrays

LABEL = "none: metric points alone"  # in the place of a bundle's digest


def points_alone() -> Engine:
    """An engine that takes points and leaves depth as it is: points correct before and after."""

    def pseudo_depth(rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> list[np.ndarray]:
        return [zoe_u16]

    manifest = {"outputs": ["depth"], "commit": "none", "takes_points": True}
    return Engine(tensors_by_arrays(pseudo_depth), pseudo_depth, manifest, LABEL, "cpu", 1)
