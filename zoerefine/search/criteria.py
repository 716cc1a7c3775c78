"""How STUDY judges trials: its objectives, and limits that a trial must keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yacs.config import CfgNode

from zoerefine.errors import UserError
from zoerefine.registries import OBJECTIVES


@dataclass(frozen=True)
class Limit:
    """An upper bound on an objective."""

    name: str
    at_most: float


@dataclass(frozen=True)
class Criteria:
    """A study's objectives and limits, by the names in `OBJECTIVES`."""

    objectives: tuple[str, ...]
    limits: tuple[Limit, ...]

    @property
    def measured(self) -> set[str]:
        """Every objective that has to be measured."""
        return {*self.objectives, *(limit.name for limit in self.limits)}

    def excess(self, figures: Mapping[str, float]) -> dict[str, float]:
        """How far each limit is exceeded; 0 or less where it is kept."""
        return {
            limit.name: figures[limit.name] - limit.at_most
            for limit in self.limits
            if limit.name in figures
        }


def read_criteria(cfg: CfgNode) -> Criteria:
    """STUDY's objectives and constraints. Raises `UserError` for an unknown or repeated one."""
    names = tuple(cfg.STUDY.OBJECTIVES)
    for name in names:
        OBJECTIVES.check(name, "STUDY.OBJECTIVES")
    if not names or len(set(names)) < len(names):
        raise UserError(
            f"STUDY.OBJECTIVES must list one or more of {', '.join(OBJECTIVES)}, each once; "
            f"got {list(names)}"
        )
    limits = (
        _read_limit(one, f"STUDY.CONSTRAINTS[{index}]")
        for index, one in enumerate(cfg.STUDY.CONSTRAINTS)
    )
    return Criteria(names, tuple(limits))


def _read_limit(value: Any, key: str) -> Limit:
    if not isinstance(value, Mapping) or set(value) != {"name", "at_most"}:
        raise UserError(
            f"{key} must be a mapping such as {{name: latency_ms, at_most: 10.0}}, got {value}"
        )
    OBJECTIVES.check(str(value["name"]), f"{key}.name")
    try:
        return Limit(value["name"], float(value["at_most"]))
    except (TypeError, ValueError):
        raise UserError(f"{key}.at_most must be a number, got {value['at_most']!r}") from None
