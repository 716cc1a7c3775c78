"""How a study judges trials: its objectives, and limits that a trial must keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Direction = Literal["minimize", "maximize"]


@dataclass(frozen=True)
class Limit:
    """An upper bound on a figure."""

    name: str
    at_most: float


@dataclass(frozen=True)
class Criteria:
    """A study's objectives by name with their directions, and its limits."""

    directions: Mapping[str, Direction]
    limits: tuple[Limit, ...] = ()

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives' names, in order."""
        return tuple(self.directions)

    @property
    def measured(self) -> set[str]:
        """Every figure that has to be measured."""
        return {*self.objectives, *(limit.name for limit in self.limits)}

    def excess(self, figures: Mapping[str, float]) -> dict[str, float]:
        """How far each limit is exceeded; 0 or less where it is kept."""
        return {
            limit.name: figures[limit.name] - limit.at_most
            for limit in self.limits
            if limit.name in figures
        }
