"""The cost of each group of runs: engine latency, or network size if there is no engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zoerefine.analysis.groups import METRIC, Group
from zoerefine.analysis.run_record import Run
from zoerefine.analysis.seed_statistics import estimate

LATENCY = "engine latency, ms per frame"
PARAMETERS = "parameters, millions"


@dataclass(frozen=True)
class Cost:
    """A group's cost and score, by run and as means over the runs that have both."""

    label: str
    costs: list[float]
    scores: list[float]

    @property
    def cost(self) -> float:
        return estimate(self.costs)

    @property
    def score(self) -> float:
        return estimate(self.scores)


def group_costs(groups: Sequence[Group], split: str) -> tuple[list[Cost], str]:
    """The groups with a cost, and its unit: latency if all groups were exported, else size."""
    scored = [group for group in groups if group.scored]
    exported = [_costs(group, split, lambda run: run.latency_ms) for group in scored]
    if scored and all(cost.costs for cost in exported):
        return exported, LATENCY
    sizes = [_costs(group, split, parameters_millions) for group in scored]
    return [cost for cost in sizes if cost.costs], PARAMETERS


def _costs(group: Group, split: str, cost_of: Callable[[Run], float | None]) -> Cost:
    pairs = [(cost_of(run), run.metric(split, "refined", METRIC)) for run in group.scored]
    known = [(cost, score) for cost, score in pairs if cost is not None and score is not None]
    return Cost(group.label, [cost for cost, _ in known], [score for _, score in known])


def parameters_millions(run: Run) -> float | None:
    """Size of the network."""
    count = run.result("parameters")
    return None if count is None else count / 1e6
