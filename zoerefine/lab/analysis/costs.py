"""What a group of runs costs beside its score: parameters, latency, memory, time; Pareto fronts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from zoerefine.lab.analysis.groups import RunGroup
from zoerefine.lab.analysis.statistics.significance import estimate
from zoerefine.lab.runs.record import Run

LATENCY = "engine latency, ms per frame"
PARAMETERS = "parameters, millions"
# Facts of an engine: latencies are costs of settings only where all of them are the same.
MEASURED_ALIKE = "engine", "precision", "height", "width", "device", "processor", "gpu"


@dataclass(frozen=True)
class Cost:
    """What a group's runs cost, one number per scored run."""

    group: RunGroup
    costs: list[float]

    @property
    def mean(self) -> float:
        return estimate(self.costs)


def group_costs(groups: Sequence[RunGroup]) -> tuple[list[Cost], str]:
    """The groups with a cost, and its unit.

    It is latency if each has an exported run, and all were `MEASURED_ALIKE`; else size. A run
    that was not exported has the mean latency of its group.
    """
    scored = [group for group in groups if group.scored]
    exported = [_cost(group, lambda run: run.latency_ms) for group in scored]
    engines = [run.engine for group in scored for run in group.scored if run.latency_ms is not None]
    kinds = {str([engine.get(fact) for fact in MEASURED_ALIKE]) for engine in engines}
    if None not in exported and len(kinds) == 1:
        return [cost for cost in exported if cost], LATENCY
    sizes = [_cost(group, parameters_millions) for group in scored]
    return [cost for cost in sizes if cost], PARAMETERS


def front_of_means(costs: Sequence[Cost], sign: int) -> list[tuple[float, float]]:
    """The Pareto front: each cost and mean score that no other beats in both, by rising cost.

    Args:
        sign: -1 where higher scores are better.
    """
    points = [(cost.mean, cost.group.mean) for cost in costs]
    return [points[i] for i in pareto_front([(cost, sign * mean) for cost, mean in points])]


def _cost(group: RunGroup, cost_of: Callable[[Run], float | None]) -> Cost | None:
    found = [cost_of(run) for run in group.scored]
    known = [cost for cost in found if cost is not None]
    if not known:
        return None
    return Cost(group, [estimate(known) if cost is None else cost for cost in found])


def parameters_millions(run: Run) -> float | None:
    """Size of the network."""
    count = run.result("parameters")
    return None if count is None else count / 1e6


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (cost, score) that no other beats in both, by rising cost."""
    front: list[int] = []
    best = np.inf
    for index in sorted(range(len(points)), key=lambda i: points[i]):
        if points[index][1] < best:
            best = points[index][1]
            front.append(index)
    return front
