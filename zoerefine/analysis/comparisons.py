"""Comparisons of groups, pair by pair: how large a difference is, and whether it is significant."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from zoerefine.analysis.groups import RunGroup
from zoerefine.analysis.measure import Measure
from zoerefine.analysis.run_record import Run
from zoerefine.analysis.seed_statistics import (
    ALPHA,
    ENOUGH_RUNS,
    difference_interval,
    holm,
    mean_interval,
    permutation_p,
    probability_of_improvement,
    seeds_needed,
    smallest_p,
)


@dataclass(frozen=True)
class Difference:
    """How two groups differ. Where lower is better, a negative difference favours the first.

    Attributes:
        difference: of the means over seeds.
        interval: of the difference (Welch).
        probability: the share of pairs of runs in which the first group's is better.
        p, p_adjusted: of the permutation test, alone and for all tests (Holm).
        scenes_won: the scenes, of `scenes`, on which the first group's mean is better.
        paired: interval of the mean difference by scene: how far it holds for other scenes.
        verdict: the comparison in words.

    What needs at least three seeds on both sides is None without them.
    """

    first: str
    second: str
    difference: float
    interval: tuple[float, float] | None
    probability: float | None
    p: float | None
    p_adjusted: float | None
    scenes_won: int
    scenes: int
    paired: tuple[float, float] | None
    verdict: str


def compare_groups(groups: Sequence[RunGroup], measure: Measure) -> list[Difference]:
    """Every pair of groups with scores; pairs with enough seeds are tested."""
    pairs = list(combinations([group for group in groups if len(group.scores)], 2))
    tested = [(a, b) for a, b in pairs if min(len(a.scores), len(b.scores)) >= ENOUGH_RUNS]
    p_values = [permutation_p(a.scores, b.scores) for a, b in tested]
    tests = {
        (a.label, b.label): Test(p, adjusted, verdict(a, b, adjusted, len(tested), measure.sign))
        for (a, b), p, adjusted in zip(tested, p_values, holm(p_values), strict=True)
    }
    return [_difference(a, b, measure, tests.get((a.label, b.label))) for a, b in pairs]


@dataclass(frozen=True)
class Test:
    """The outcome of one permutation test."""

    p: float
    p_adjusted: float
    verdict: str


def _difference(a: RunGroup, b: RunGroup, measure: Measure, test: Test | None) -> Difference:
    scenes = common_scenes([*a.scored, *b.scored], measure)
    by_scene = [scene_scores(group.scored, measure, scenes).mean(0) for group in (a, b)]
    seeds = min(len(a.scores), len(b.scores))
    signed = measure.sign * a.scores, measure.sign * b.scores
    too_few = f"no conclusion: {seeds} of at least {ENOUGH_RUNS} seeds"
    return Difference(
        first=a.label,
        second=b.label,
        difference=a.mean - b.mean,
        interval=difference_interval(a.scores, b.scores),
        probability=probability_of_improvement(*signed) if test else None,
        p=test.p if test else None,
        p_adjusted=test.p_adjusted if test else None,
        scenes_won=int((by_scene[0] < by_scene[1]).sum()),
        scenes=len(scenes),
        paired=mean_interval(by_scene[0] - by_scene[1]),
        verdict=test.verdict if test else too_few,
    )


def verdict(a: RunGroup, b: RunGroup, p_adjusted: float, tests: int, sign: int = 1) -> str:
    """The outcome in words of one test out of `tests`; `sign` is -1 where higher is better."""
    interval = difference_interval(a.scores, b.scores)
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "no significant difference"
    better = "first" if sign * interval[1] < 0 else "second"
    if p_adjusted <= ALPHA:
        return f"the {better} is better"
    if smallest_p(len(a.scores), len(b.scores)) * tests > ALPHA:
        needed = seeds_needed(tests)
        return f"the {better} looks better; significance needs {needed} seeds per group"
    return f"the {better} looks better, but not significantly"


def common_scenes(runs: Sequence[Run], measure: Measure) -> list[str]:
    """Scenes that every run was evaluated on."""
    found = [set(measure.scenes(run)) for run in runs]
    return sorted(set.intersection(*found)) if found else []


def scene_scores(runs: Sequence[Run], measure: Measure, scenes: Sequence[str]) -> np.ndarray:
    """Final metrics by run and scene: float64 [runs, scenes]."""
    rows = [measure.scenes(run) for run in runs]
    values = [[row[scene] for scene in scenes] for row in rows]
    return np.array(values, np.float64).reshape(len(runs), len(scenes))
