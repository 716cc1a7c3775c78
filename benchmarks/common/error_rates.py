"""Error rates of the analysis' verdicts, on simulated studies: false "better", and power.

A study whose groups are equal (A/A) has no true difference: every "better" in it is false. Power
is the share of studies with a true difference in which the better group is found.
"""

from itertools import combinations
from math import sqrt
from statistics import mean

import numpy as np
from common.report import Row, row

from zoerefine.lab.analysis.groups import RunGroup
from zoerefine.lab.analysis.statistics.comparisons import SceneTest, verdict
from zoerefine.lab.analysis.statistics.significance import ALPHA, holm, permutation_p, sign_flip_p

SEEDS = 3, 5, 6, 10
EQUAL_GROUPS = 2, 5
DIFFERENCES_SD = 1, 2, 3
SCENES = 6, 10, 40
ENOUGH_STUDIES = 1000


def error_rates(studies: int) -> list[Row]:
    """Shares of studies with normally distributed scores, by the seeds in a group.

    The goal of a false "better" is 5%; with few studies, plus two standard errors of a share.
    """
    allowed = ALPHA if studies >= ENOUGH_STUDIES else with_noise(studies)
    rows = []
    for seeds in SEEDS:
        rng = np.random.default_rng(0)
        for groups in EQUAL_GROUPS:
            equal = rng.normal(0, 1, (studies, groups, seeds))
            label = f"{seeds} seeds: {groups} equal groups, a false 'better'"
            rows.append(row(label, mean(any(verdicts(one)) for one in equal), "", at_most=allowed))
        for apart in DIFFERENCES_SD:
            different = rng.normal(np.array([[0.0], [apart]]), 1, (studies, 2, seeds))
            label = f"{seeds} seeds: 2 groups {apart} sd apart, 'better' found"
            rows.append(row(label, mean(any(verdicts(one)) for one in different), ""))
    return rows


def scene_error_rates(studies: int) -> list[Row]:
    """The same for comparisons by scene: scenes differ much, and in one group from the other less.

    The differences have heavy tails. The goal is 5%, plus two standard errors of a share from so
    few studies.
    """
    allowed = with_noise(studies)
    rng = np.random.default_rng(0)
    rows = []
    for scenes in SCENES:
        equal, better = (
            mean(
                any(SceneTest(one, p).verdict.endswith("is better") for one, p in tested(drawn))
                for drawn in (rng.standard_t(4, (pairs, scenes)) + shift for _ in range(studies))
            )
            for pairs, shift in ((10, 0.0), (1, 1.0))
        )
        label = f"{scenes} scenes:"
        rows.append(row(f"{label} 10 equal pairs, a false 'better'", equal, "", at_most=allowed))
        rows.append(row(f"{label} 1 pair 1 sd apart, 'better' found", better, ""))
    return rows


def with_noise(studies: int) -> float:
    """The level of the tests and two standard errors of a share of so many studies."""
    return ALPHA + 2 * sqrt(ALPHA * (1 - ALPHA) / studies)


def tested(differences: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Differences by scene, [pairs, scenes], with their adjusted p values."""
    return list(zip(differences, holm([sign_flip_p(one) for one in differences]), strict=True))


def verdicts(scores: np.ndarray) -> list[bool]:
    """For each pair of groups whether one is called better; scores is [groups, seeds]."""
    groups = [RunGroup(str(number), [], [], values) for number, values in enumerate(scores)]
    pairs = list(combinations(groups, 2))
    adjusted = holm([permutation_p(a.scores, b.scores) for a, b in pairs])
    return [
        verdict(a, b, p, len(pairs)).endswith("is better")
        for (a, b), p in zip(pairs, adjusted, strict=True)
    ]
