"""Groups of runs that differ only in their seed, and their scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoerefine.analysis.group_names import group_names
from zoerefine.analysis.run_record import Run, differing_keys
from zoerefine.analysis.seed_statistics import estimate, mean_interval
from zoerefine.errors import UserError
from zoerefine.metrics import SELECTION_METRIC

METRIC = SELECTION_METRIC  # lower is better; checkpoints and trials are chosen by it


@dataclass(frozen=True)
class RunGroup:
    """Runs of one setting.

    Attributes:
        label: the settings in which the group differs from others, or the run's name.
        scored: the runs with a final metric on the chosen split.
        scores: their final metrics, float64 [len(scored)].
    """

    label: str
    runs: list[Run]
    scored: list[Run]
    scores: np.ndarray

    @property
    def mean(self) -> float:
        """The mean over seeds; NaN without scores."""
        return estimate(self.scores)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the mean; None for fewer than three runs."""
        return mean_interval(self.scores)


def choose_split(runs: Sequence[Run]) -> str:
    """`test` where every run with results was tested, else `val`: the same scenes for all runs."""
    measured = [run for run in runs if run.results]
    tested = all(run.metric("test", "refined", METRIC) is not None for run in measured)
    return "test" if measured and tested else "val"


def make_groups(runs: list[Run], split: str, by: str | None = None) -> list[RunGroup]:
    """Groups, the lowest mean first; those without a score come last.

    Args:
        by: a setting to group by; None: all settings but the seed.
    """
    if by is not None and all(by not in run.settings for run in runs):
        raise UserError(f"--by {by}: no run has this setting")
    members: dict[str, list[Run]] = {}
    for run in runs:
        key = run.group if by is None else str(run.settings.get(by))
        members.setdefault(key, []).append(run)
    names = group_names(list(members.values()), [by] if by else differing_keys(runs))
    groups = [
        make_group(name, found, split) for name, found in zip(names, members.values(), strict=True)
    ]
    return sorted(groups, key=lambda g: (not len(g.scores), g.mean, g.label))


def make_group(label: str, runs: list[Run], split: str) -> RunGroup:
    """A group and its scores on the split."""
    found = {run.path: run.metric(split, "refined", METRIC) for run in runs}
    scored = [run for run in runs if found[run.path] is not None]
    return RunGroup(label, runs, scored, np.array([found[run.path] for run in scored], np.float64))
