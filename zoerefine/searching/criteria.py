"""How STUDY judges trials: its objectives, and limits that a trial must keep."""

from collections.abc import Mapping
from dataclasses import dataclass

from zoerefine.config import Config


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


def read_criteria(cfg: Config) -> Criteria:
    """STUDY's objectives and constraints."""
    limits = (Limit(one["name"], one["at_most"]) for one in cfg.STUDY.CONSTRAINTS)
    return Criteria(tuple(cfg.STUDY.OBJECTIVES), tuple(limits))
