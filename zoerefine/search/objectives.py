"""What a trial is judged by: figures of a finished run, made small, and limits on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yacs.config import CfgNode

from zoerefine.errors import UserError
from zoerefine.run_dir import RunDir

FIGURES = {
    "abs_rel": "validation AbsRel",
    "latency_ms": "milliseconds a frame of the exported engine",
    "parameters": "parameters of the refiner",
}


@dataclass(frozen=True)
class Limit:
    """A figure that must not be above a value."""

    name: str
    at_most: float


@dataclass(frozen=True)
class Goals:
    """The figures that a study makes small, and its limits."""

    objectives: tuple[str, ...]
    limits: tuple[Limit, ...]

    @property
    def needed(self) -> set[str]:
        """Every figure that has to be measured."""
        return {*self.objectives, *(limit.name for limit in self.limits)}

    def excess(self, figures: Mapping[str, float]) -> dict[str, float]:
        """How far each limit is exceeded; 0 or less where it is kept."""
        return {
            limit.name: figures[limit.name] - limit.at_most
            for limit in self.limits
            if limit.name in figures
        }


def read_goals(cfg: CfgNode) -> Goals:
    """STUDY's objectives and constraints. Raises `UserError` where they mean nothing."""
    known = ", ".join(FIGURES)
    names = tuple(cfg.STUDY.OBJECTIVES)
    if not names or len(set(names)) < len(names) or not set(names) <= set(FIGURES):
        raise UserError(f"STUDY.OBJECTIVES must be one or several of {known}, got {list(names)}")
    limits = []
    for one in cfg.STUDY.CONSTRAINTS:
        try:
            limit = Limit(one["name"], float(one["at_most"]))
            meant = limit.name in FIGURES and set(one) == {"name", "at_most"}
        except (TypeError, KeyError, ValueError):
            meant = False
        if not meant:
            raise UserError(
                "STUDY.CONSTRAINTS must be a list such as [{name: latency_ms, at_most: 10.0}], "
                f"names being {known}; got {one}"
            )
        limits.append(limit)
    return Goals(names, tuple(limits))


def count_parameters(cfg: CfgNode) -> int:
    """Parameters of the refiner that a config describes; known before it is trained."""
    import torch

    from zoerefine.model import build_refiner

    with torch.device("meta"):  # shapes alone
        refiner = build_refiner(cfg.MODEL.NAME, cfg.MODEL.BASE, cfg.MODEL.MAX_LOG)
    return sum(p.numel() for p in refiner.parameters())


def measure(run: RunDir, results: Mapping[str, Any], needed: set[str]) -> dict[str, float]:
    """The figures of a trained run; its engine is built where its latency is needed."""
    figures = {
        "abs_rel": float(results["val"]["refined"]["abs_rel"]),
        "parameters": float(results["parameters"]),
    }
    if "latency_ms" in needed:
        figures["latency_ms"] = engine_latency(run)
    return figures


def engine_latency(run: RunDir) -> float:
    """Milliseconds a frame at batch 1, as the engine's manifest has it."""
    from zoerefine.export.bundle import read_manifest
    from zoerefine.export.export import export

    manifest = read_manifest(run.bundle if run.bundle.exists() else export(run))
    return float(manifest["latency_ms"])
