"""Groups of runs that differ in their seed alone, their scores, and whether two really differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from zoerefine.analysis.collect import Run, differing
from zoerefine.analysis.seed_statistics import (
    ENOUGH_RUNS,
    bootstrap_interval,
    cliffs_delta,
    holm,
    interquartile_mean,
    percentiles,
    permutation_p,
    probability_of_improvement,
    resample,
)
from zoerefine.errors import UserError

METRIC = "abs_rel"  # lower is better; what runs are chosen by


@dataclass(frozen=True)
class Group:
    """Runs of one setting.

    Attributes:
        label: the settings in which the group differs from others, or the run's name.
        scores: of the runs that have one, on the same split, in the order of `scored`.
        interval: of the interquartile mean; None for fewer than three runs.
    """

    label: str
    runs: list[Run]
    scored: list[Run]
    scores: np.ndarray
    interval: tuple[float, float] | None

    @property
    def center(self) -> float:
        """The interquartile mean of the scores; NaN where there is none."""
        return interquartile_mean(self.scores) if len(self.scores) else float("nan")


@dataclass(frozen=True)
class Difference:
    """How two groups differ; negative and below one half is in favour of the first."""

    first: str
    second: str
    difference: float  # of the means
    interval: tuple[float, float] | None
    delta: float  # Cliff's, in -1..1; above 0 in favour of the first
    probability: float  # that a run of the first beats one of the second on a scene
    p: float
    p_adjusted: float  # for all comparisons (Holm)
    scenes_won: int
    scenes: int
    paired: tuple[float, float] | None  # of the mean difference, scenes drawn anew
    verdict: str


def choose_split(runs: Sequence[Run]) -> str:
    """`test` where every finished run has it, else `val`: scenes must be the same for all."""
    scored = [run for run in runs if run.results]
    on_test = all(run.metric("test", "refined", METRIC) is not None for run in scored)
    return "test" if scored and on_test else "val"


def make_groups(runs: list[Run], split: str, by: str | None = None) -> list[Group]:
    """Groups, the best first; those without a score come last.

    Args:
        by: a setting to group by; None: all settings but the seed.
    """
    if by is not None and all(by not in run.settings for run in runs):
        raise UserError(f"--by {by}: no such setting in these runs")
    keys = differing(runs)
    members: dict[str, list[Run]] = {}
    for run in runs:
        key = run.group if by is None else str(run.settings.get(by))
        members.setdefault(key, []).append(run)
    groups = [_group(label_of(found, keys, by), found, split) for found in members.values()]
    return sorted(groups, key=lambda g: (not len(g.scores), g.center, g.label))


def _group(label: str, runs: list[Run], split: str) -> Group:
    scored = [run for run in runs if run.metric(split, "refined", METRIC) is not None]
    scores = np.array([run.metric(split, "refined", METRIC) for run in scored], np.float64)
    interval = None
    if len(scores) >= ENOUGH_RUNS:
        interval = bootstrap_interval(scores[:, None], interquartile_mean)
    return Group(label, runs, scored, scores, interval)


def label_of(runs: list[Run], keys: list[str], by: str | None) -> str:
    """The settings that tell a group from the others; a single run also has its name."""
    names = [by] if by else [key for key in keys if not key.startswith("DATA.")]
    values = [f"{n.rpartition('.')[2].lower()} {brief(runs[0].settings.get(n))}" for n in names]
    label = ", ".join(values)
    if len(runs) == 1:
        return f"{runs[0].name}: {label}" if label else runs[0].name
    return label or f"{len(runs)} runs"


def brief(value: Any) -> str:
    """A setting in a few characters."""
    if isinstance(value, float):
        return f"{value:.2g}"
    text = str(value)
    return text if len(text) <= 28 else f"{text[:25]}..."


def compare_groups(groups: Sequence[Group], split: str) -> list[Difference]:
    """Every pair of groups with a score, p adjusted for all of them."""
    pairs = list(combinations([g for g in groups if len(g.scores)], 2))
    p_values = [permutation_p(a.scores, b.scores) for a, b in pairs]
    adjusted = holm(p_values)
    return [
        _difference(a, b, split, p, q)
        for (a, b), p, q in zip(pairs, p_values, adjusted, strict=True)
    ]


def _difference(a: Group, b: Group, split: str, p: float, p_adjusted: float) -> Difference:
    scenes = common_scenes([*a.scored, *b.scored], split)
    ours, theirs = (scene_scores(g.scored, split, scenes) for g in (a, b))
    if not scenes:  # no scenes recorded: the whole split counts as one
        ours, theirs = a.scores[:, None], b.scores[:, None]
    interval = _difference_interval(ours, theirs)
    won = int((ours.mean(0) < theirs.mean(0)).sum())
    return Difference(
        first=a.label,
        second=b.label,
        difference=float(a.scores.mean() - b.scores.mean()),
        interval=interval,
        delta=cliffs_delta(a.scores, b.scores),
        probability=probability_of_improvement(ours, theirs),
        p=p,
        p_adjusted=p_adjusted,
        scenes_won=won,
        scenes=ours.shape[1],
        paired=bootstrap_interval((ours.mean(0) - theirs.mean(0))[:, None]),
        verdict=_verdict(a, b, interval, p_adjusted),
    )


def _difference_interval(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float] | None:
    """Stratified bootstrap of the difference of means: both sides' runs are drawn anew."""
    if min(len(ours), len(theirs)) < ENOUGH_RUNS:
        return None
    resampled = [resample(side, seed) for seed, side in enumerate((ours, theirs))]
    means = [side.mean((1, 2)) for side in resampled]
    return percentiles(means[0] - means[1])


def _verdict(a: Group, b: Group, interval: tuple[float, float] | None, p: float) -> str:
    """The comparison in words."""
    fewest = min(len(a.scores), len(b.scores))
    if fewest < ENOUGH_RUNS:
        return f"too few seeds to say ({fewest}; {ENOUGH_RUNS} are needed)"
    assert interval is not None
    if interval[0] <= 0 <= interval[1]:
        return "no difference that these runs can show"
    better = "first" if interval[1] < 0 else "second"
    if p > 0.05:
        return f"the {better} looks better, but chance is not excluded among so many comparisons"
    return f"the {better} is better"


def common_scenes(runs: Sequence[Run], split: str) -> list[str]:
    """Scenes that every run was evaluated on."""
    found = [set(run.scenes(split, "refined", METRIC)) for run in runs]
    return sorted(set.intersection(*found)) if found else []


def scene_scores(runs: Sequence[Run], split: str, scenes: Sequence[str]) -> np.ndarray:
    """[runs, scenes]."""
    rows = [run.scenes(split, "refined", METRIC) for run in runs]
    return np.array([[row[scene] for scene in scenes] for row in rows]).reshape(len(runs), -1)
