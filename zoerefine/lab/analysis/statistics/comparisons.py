"""Comparisons of groups, pair by pair: how large a difference is, and whether it is significant."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from zoerefine.lab.analysis.groups import Measure, RunGroup, not_comparable, other_jobs
from zoerefine.lab.analysis.statistics.significance import (
    ALPHA,
    ENOUGH_RUNS,
    ENOUGH_SCENES,
    difference_interval,
    holm,
    mean_interval,
    permutation_p,
    probability_of_improvement,
    seeds_needed,
    sign_flip_p,
    smallest_p,
)
from zoerefine.lab.runs.record import Run


@dataclass(frozen=True)
class Difference:
    """How two groups differ. Where lower is better, a negative difference favours the first.

    Attributes:
        difference: of the means over seeds.
        interval: of the difference (Welch).
        probability: the share of pairs of runs in which the first group's is better.
        p, p_adjusted: of the permutation test, alone and for all tests (Holm).
        verdict: the comparison of seeds in words: whether it holds for other trainings. Without a
            conclusion it says why, and so does `scenes_verdict`.
        scenes_won: the scenes, of `scenes`, on which the first group's mean is better.
        paired: interval of the mean difference by scene.
        scenes_p_adjusted: of the test by scene (see `scene_tests`), for all such tests (Holm).
        scenes_verdict: the comparison by scene in words: whether it holds for other scenes.

    What needs at least three seeds on both sides is None without them; what needs at least six
    scenes likewise.
    """

    first: str
    second: str
    difference: float
    interval: tuple[float, float] | None
    probability: float | None
    p: float | None
    p_adjusted: float | None
    verdict: str
    scenes_won: int
    scenes: int
    paired: tuple[float, float] | None
    scenes_p_adjusted: float | None
    scenes_verdict: str


Pair = tuple[RunGroup, RunGroup]
# Verdicts on groups whose means cannot be compared.
OTHER = "no conclusion: measured on different "
LOST = "no conclusion: not every run of a group has its final value"
MIXED = "no conclusion: runs of one setting and seed are of different jobs"


def compare_groups(
    groups: Sequence[RunGroup], measure: Measure, baseline: RunGroup | None = None
) -> list[Difference]:
    """Every pair of groups with scores; comparable ones with enough finished seeds are tested.

    Args:
        baseline: only pairs of a group and this one, which comes second. Fewer tests need fewer
            seeds.
    """
    scored = [group for group in groups if len(group.scores)]
    pairs = list(combinations(scored, 2))
    if baseline is not None:
        pairs = [(group, baseline) for group in scored if group is not baseline]
    faults = comparison_faults(pairs, measure)
    lacks = [fault or lack(a, b) for (a, b), fault in zip(pairs, faults, strict=True)]
    p_values = {
        n: permutation_p(a.scores, b.scores) for n, (a, b) in enumerate(pairs) if not lacks[n]
    }
    adjusted = dict(zip(p_values, holm([*p_values.values()]), strict=True))
    by_scene = scene_tests(pairs, faults, measure)
    sign, found = measure.sign, []
    for n, (a, b) in enumerate(pairs):
        is_tested, scenes = n in p_values, by_scene[n]
        pair_share = probability_of_improvement(sign * a.scores, sign * b.scores)
        found.append(Difference(
            first=a.label,
            second=b.label,
            difference=a.mean - b.mean,
            interval=difference_interval(a.scores, b.scores),
            probability=pair_share if is_tested else None,
            p=p_values.get(n),
            p_adjusted=adjusted.get(n),
            verdict=lacks[n] or verdict(a, b, adjusted[n], len(p_values), sign),
            scenes_won=int((scenes.differences < 0).sum()),
            scenes=len(scenes.differences),
            paired=mean_interval(scenes.differences),
            scenes_p_adjusted=scenes.p_adjusted,
            scenes_verdict=scenes.verdict if len(scenes.differences) else "",
        ))  # fmt: skip
    return found


def lack(a: RunGroup, b: RunGroup) -> str:
    """What two groups lack for a test; empty for nothing."""
    if not (a.is_finished and b.is_finished):
        return "no conclusion: no run of a group finished"
    seeds = min(len(a.scores), len(b.scores))
    return "" if seeds >= ENOUGH_RUNS else f"no conclusion: {seeds} of at least {ENOUGH_RUNS} seeds"


def comparison_faults(pairs: Sequence[Pair], measure: Measure) -> list[str]:
    """Why two groups cannot be compared at all, by pair; empty where they can."""
    runs = {run.path: run for pair in pairs for group in pair for run in group.scored}
    differ = bool(not_comparable(list(runs.values()), measure))  # otherwise no pair differs
    found = []
    for a, b in pairs:
        other = not_comparable([*a.scored, *b.scored], measure) if differ else ""
        lost = MIXED if other_jobs([*a.runs, *b.runs]) else LOST if a.lost or b.lost else ""
        found.append(f"{OTHER}{other}" if other else lost)
    return found


@dataclass(frozen=True)
class SceneTest:
    """The comparison of two groups scene by scene.

    Attributes:
        differences: first minus second, of the means over seeds, float64 [scenes].
        p_adjusted: None with a fault, or fewer than ENOUGH_SCENES scenes.
        fault: of `comparison_faults`.
    """

    differences: np.ndarray
    p_adjusted: float | None = None
    fault: str = ""

    @property
    def verdict(self) -> str:
        """The outcome in words. AbsRel is compared by scene: lower is better."""
        if self.fault:
            return self.fault
        if self.p_adjusted is None:
            return f"no conclusion: {len(self.differences)} of at least {ENOUGH_SCENES} scenes"
        better = favoured(mean_interval(self.differences))
        if not better or self.p_adjusted > ALPHA:
            return "no significant difference"
        return f"the {better} is better"


def scene_tests(pairs: Sequence[Pair], faults: Sequence[str], measure: Measure) -> list[SceneTest]:
    """Each pair compared scene by scene, by exchange of the two groups in each scene.

    A scene counts once, with the mean over seeds, so that frames and seeds of a scene are not
    taken for independent. The question is whether the difference holds on other scenes, with
    these trainings; other seeds may differ more.
    """
    found = []
    for a, b in pairs:
        scenes = common_scenes([*a.scored, *b.scored], measure)
        first, second = (scene_scores(group.scored, measure, scenes).mean(0) for group in (a, b))
        found.append(first - second)
    large = [n for n, one in enumerate(found) if len(one) >= ENOUGH_SCENES and not faults[n]]
    adjusted = dict(zip(large, holm([sign_flip_p(found[i]) for i in large]), strict=True))
    return [SceneTest(one, adjusted.get(n), faults[n]) for n, one in enumerate(found)]


def verdict(a: RunGroup, b: RunGroup, p_adjusted: float, tests: int, sign: int = 1) -> str:
    """The outcome in words of one test out of `tests`; `sign` is -1 where higher is better."""
    better = favoured(difference_interval(a.scores, b.scores), sign)
    if not better:
        return "no significant difference"
    if p_adjusted <= ALPHA:
        return f"the {better} is better"
    if smallest_p(len(a.scores), len(b.scores)) * tests > ALPHA:
        needed = seeds_needed(tests)
        return f"the {better} looks better; significance needs {needed} seeds per group"
    return f"the {better} looks better, but not significantly"


def favoured(interval: tuple[float, float] | None, sign: int = 1) -> str:
    """`first` or `second`: whom the interval of a difference favours; empty where it holds 0."""
    if interval is None or interval[0] <= 0 <= interval[1]:
        return ""
    return "first" if sign * interval[1] < 0 else "second"


def common_scenes(runs: Sequence[Run], measure: Measure) -> list[str]:
    """Scenes that every run was evaluated on."""
    found = [set(measure.scenes(run)) for run in runs]
    return sorted(set.intersection(*found)) if found else []


def scene_scores(runs: Sequence[Run], measure: Measure, scenes: Sequence[str]) -> np.ndarray:
    """Final metrics by run and scene: float64 [runs, scenes]."""
    rows = [measure.scenes(run) for run in runs]
    values = [[row[scene] for scene in scenes] for row in rows]
    return np.array(values, np.float64).reshape(len(runs), len(scenes))


def seeds_note(groups: Sequence[RunGroup], differences: Sequence[Difference]) -> str:
    """A sentence with the seeds that are needed; empty where a difference can be significant.

    Holm's correction multiplies the smallest p value by the number of tests. Where no pair of
    groups can then reach ALPHA, no data could make a difference significant.
    """
    seeds = {group.label: len(group.scores) for group in groups}
    comparable = [one for one in differences if not one.verdict.startswith((OTHER, LOST, MIXED))]
    pairs = [(seeds[one.first], seeds[one.second]) for one in comparable]
    tested = [pair for pair in pairs if min(pair) >= ENOUGH_RUNS]
    if not pairs or any(smallest_p(n, m) * len(tested) <= ALPHA for n, m in tested):
        return ""
    comparisons = f"{len(pairs)} comparisons" if len(pairs) > 1 else "one comparison"
    return (
        f"With these seeds no difference can be significant, however large it is: p_adjusted <= "
        f"{ALPHA} needs {seeds_needed(len(pairs))} seeds per group for {comparisons}."
    )
