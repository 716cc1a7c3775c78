"""What trials are compared by: how each objective is measured, and in which direction it is better.

To add one, write it here and add its row to `OBJECTIVES` in `zoerefine/base/registries.py`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zoerefine.base.config import Config
from zoerefine.base.registries import OBJECTIVES
from zoerefine.base.run_dir import RunDir

Results = Mapping[str, Any]  # what a run's results.json holds


@dataclass(frozen=True)
class Objective:
    """A number that a finished run is judged by."""

    direction: Literal["minimize", "maximize"]
    measure: Callable[[RunDir, Results], float]
    from_config: Callable[[Config], float] | None = None  # where it is known before training


def count_parameters(cfg: Config) -> float:
    """How many parameters the refiner that a config describes would have."""
    import torch

    from zoerefine.depth.model import build_refiner

    with torch.device("meta"):  # shapes without memory
        refiner = build_refiner(cfg.MODEL)
    return float(sum(p.numel() for p in refiner.parameters()))


def engine_latency_ms(run: RunDir, results: Results) -> float:
    """Milliseconds a frame at batch 1 from the engine's manifest; exports the run if needed."""
    from zoerefine.depth.exporting.bundle.bundle import read_manifest
    from zoerefine.depth.exporting.export import export

    manifest = read_manifest(run.bundle if run.bundle.exists() else export(run))
    return float(manifest["latency_ms"])


# Metrics of the refined validation frames:
abs_rel = Objective("minimize", lambda _, results: float(results["val"]["refined"]["abs_rel"]))
delta1 = Objective("maximize", lambda _, results: float(results["val"]["refined"]["delta1"]))
latency_ms = Objective("minimize", engine_latency_ms)
parameters = Objective(
    "minimize", lambda _, results: float(results["parameters"]), count_parameters
)


def measure(run: RunDir, results: Results, names: Collection[str]) -> dict[str, float]:
    """Objectives of a trained run by name."""
    return {name: OBJECTIVES.load(name).measure(run, results) for name in names}


def measure_config(cfg: Config, names: Collection[str]) -> dict[str, float]:
    """Those objectives that are known before the config is trained."""
    objectives = {name: OBJECTIVES.load(name) for name in names}
    return {name: one.from_config(cfg) for name, one in objectives.items() if one.from_config}
