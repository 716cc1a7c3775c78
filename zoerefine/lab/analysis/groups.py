"""Groups of runs that differ only in their seed, their scores, and whether they can be compared."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.config_roles import SEED
from zoerefine.base.errors import UserError
from zoerefine.base.messages import counted
from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.base.yaml.equal_values import equal_text_at
from zoerefine.lab.analysis.group_names import group_names, shared_names, shortened
from zoerefine.lab.analysis.statistics.significance import estimate, mean_interval
from zoerefine.lab.launch.record.times_and_speeds import is_time
from zoerefine.lab.runs.group_key import CODE
from zoerefine.lab.runs.metrics.find_files import natural_order
from zoerefine.lab.runs.metrics.steps import is_telling
from zoerefine.lab.runs.record import Curve, Run, differing_keys


@dataclass(frozen=True)
class Measure:
    """A number of each run, and its curve.

    Attributes:
        split: the scenes that AbsRel is compared on: `val` or `test`.
        metric: the name of another metric, whose final value is compared; empty: AbsRel.
        maximize: whether higher is better.
    """

    split: str = "val"
    metric: str = ""
    maximize: bool = False

    @property
    def label(self) -> str:
        """Its name in texts."""
        return shortened(self.metric) or "AbsRel"

    @property
    def better(self) -> str:
        """`lower` or `higher`."""
        return "higher" if self.maximize else "lower"

    @property
    def sign(self) -> int:
        """A score times its sign is lower where it is better."""
        return -1 if self.maximize else 1

    @property
    def place(self) -> str:
        """What it was measured on, in texts; empty for a metric whose meaning is not known."""
        if self.metric:
            return ""
        return "test scenes" if self.split == "test" else "validation scenes"

    @property
    def on_place(self) -> str:
        """` on the test scenes`, where that is known."""
        return f" on the {self.place}" if self.place else ""

    def score(self, run: Run) -> float | None:
        """A run's final value; None where it has none, or it is not finite."""
        if self.metric:
            return run.final(self.metric)
        return run.metric(self.split, "refined", SELECTION_METRIC)

    def is_lost(self, run: Run) -> bool:
        """Whether a run without a score should have one: it diverged, or did not log it.

        Our own runs may have been evaluated on other scenes.
        """
        if run.state != "finished" or run.is_foreign:
            return run.state == "finished"
        if self.metric:
            return self.metric in run.finals
        return SELECTION_METRIC in run.results.get(self.split, {}).get("refined", {})

    def pseudo(self, run: Run) -> float | None:
        """The same of the pseudo depth itself."""
        return None if self.metric else run.metric(self.split, "pseudo", SELECTION_METRIC)

    def scenes(self, run: Run, which: str = "refined") -> dict[str, float]:
        """The final value by scene, of the refined or of the pseudo depth."""
        return {} if self.metric else run.scenes(self.split, which, SELECTION_METRIC)

    def curve(self, run: Run) -> Curve | None:
        """The values while training."""
        return run.curves.get(self.metric) if self.metric else run.curve


SAME_ERROR = 1e-4  # relative: the pseudo depth's error on the same pixels, beside rounding


def not_comparable(runs: Sequence[Run], measure: Measure) -> str:
    """What differs in what the runs were measured on; empty where nothing does.

    Pseudo depth is not trained, so its error differs only where other pixels were measured.
    """
    measured = [run for run in runs if run.results]
    if len({str(run.results.get("data_digest")) for run in measured}) > 1:
        return "data"
    split = measure.metric.partition(".")[0] if measure.metric else measure.split
    if split not in ("val", "test"):
        return ""
    found = Measure(split)
    if len({frozenset(found.scenes(run)) for run in measured} - {frozenset()}) > 1:
        return found.place
    errors = [error for run in measured if (error := found.pseudo(run)) is not None]
    differ = errors and max(errors) - min(errors) > SAME_ERROR * max(errors)
    return f"pixels of the {found.place}" if differ else ""


def not_comparable_note(groups: Sequence["RunGroup"], measure: Measure) -> str:
    """The mark of tables; empty where the runs can be compared."""
    other = not_comparable([run for group in groups for run in group.runs], measure)
    return f"NOT COMPARABLE: different {other}" if other else ""


def choose_measure(runs: Sequence[Run]) -> Measure:
    """AbsRel, on `test` where every run with a finite AbsRel was tested, else on `val`."""
    val, test = Measure("val"), Measure("test")
    tested = [run for run in runs if test.score(run) is not None]
    only_val = [run for run in runs if test.score(run) is None and val.score(run) is not None]
    return test if tested and not only_val else val


@dataclass(frozen=True)
class RunGroup:
    """Runs of one setting.

    Attributes:
        label: the settings in which the group differs from others, or the run's name.
        scored: the finished runs with a final metric on the chosen split; where none finished,
            those with a metric so far. Of runs that are the same with every seed, the first one;
            of those with one setting and seed, as by `--again`, the last one.
        scores: their final metrics, float64 [len(scored)].
        repeated: how many more have the setting and seed of another one.
        seedless: how many have no seed, though others do: each may be one of those.
        lost: its finished runs whose final metric is not finite, or which a script has not logged;
            beside whole runs those that failed or that a search stopped, since the seeds that are
            left are no sample; and `other_jobs`.
    """

    label: str
    runs: list[Run]
    scored: list[Run]
    scores: np.ndarray
    lost: int = 0
    repeated: int = 0
    seedless: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether its scores are those of finished runs."""
        return all(run.is_whole for run in self.scored)

    @property
    def drawn(self) -> list[Run]:
        """The runs whose curves are averaged: a crashed one would cut the others short."""
        return one_of_each_seed(finished_or_all(with_seeds(self.runs)))

    @property
    def mean(self) -> float:
        """The mean over seeds; NaN without scores."""
        return estimate(self.scores)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the mean; None for fewer than three runs."""
        return mean_interval(self.scores)


SEEDS = "seeds"


def samples(groups: Sequence[RunGroup]) -> str:
    """What a mean is over: `seeds`, or with `--by` perhaps `runs of several settings`."""
    mixed = any(len({run.group for run in group.scored}) > 1 for group in groups)
    return "runs of several settings" if mixed else SEEDS


NAME = "name"  # of launched runs and those of trackers, which may group them; no setting


def make_groups(runs: list[Run], measure: Measure, by: str | None = None) -> list[RunGroup]:
    """Groups, the best mean first; then those that lost runs, those of which no run finished, and
    those without a mean.

    Args:
        by: a setting to group by, or `name`; None: all settings but the seed.
    """
    if by == NAME and all(NAME not in run.settings for run in runs):
        names = shared_names(runs)
        if not any(names):
            raise UserError("--by name: no run has a name that others could share")
        runs = [replace(run, settings=run.settings | {NAME: name})
                for run, name in zip(runs, names, strict=True)]  # fmt: skip
    if by is not None and all(by not in run.settings for run in runs):
        raise UserError(f"--by {by}: no run has this setting")
    members: dict[str, list[Run]] = {}
    for run in runs:
        key = run.group if by is None else equal_text_at(run.settings, by)
        members.setdefault(key, []).append(run)
    names = group_names(list(members.values()), [by] if by else differing_keys(runs))
    groups = [
        make_group(name, found, measure)
        for name, found in zip(names, members.values(), strict=True)
    ]
    return sorted(
        groups,
        key=lambda g: (
            not len(g.scores),
            not g.is_finished,
            bool(g.lost),
            measure.sign * g.mean,
            g.label,
        ),
    )


def finished_or_all(runs: list[Run]) -> list[Run]:
    """The whole runs; where there are none, all, as far as they got."""
    return [run for run in runs if run.is_whole] or runs


def with_seeds(runs: Sequence[Run]) -> list[Run]:
    """The runs without those of no seed, in settings of which others have one."""
    seeded = {run.group for run in runs if run.seed is not None}
    return [run for run in runs if run.seed is not None or run.group not in seeded]


def one_of_each_seed(runs: Sequence[Run]) -> list[Run]:
    """The runs; of those with one setting and seed the one that started last, by its name, such as
    `...-run10`, where that is not known.
    """
    in_order = sorted(runs, key=lambda run: (run.started, natural_order(run.path)))
    last = {setting_and_seed(run): run for run in in_order}
    kept = {run.path for run in last.values()}
    return [run for run in runs if run.path in kept]


def setting_and_seed(run: Run) -> tuple[Any, ...]:
    """What runs have in common of which one counts; a run without a seed is alone."""
    return run.group, run.path if run.seed is None else run.seed


def make_group(label: str, runs: list[Run], measure: Measure) -> RunGroup:
    """A group and its scores."""
    everything, runs = runs, with_seeds(runs)
    found = {run.path: measure.score(run) for run in runs}
    scored = finished_or_all([run for run in runs if found[run.path] is not None])
    scored = scored[:1] if have_same_metrics(scored, measure) else scored
    each = one_of_each_seed(scored)
    scores = np.array([found[run.path] for run in each], np.float64)
    lost = sum(found[run.path] is None and measure.is_lost(run) for run in runs)
    others = other_jobs(runs)
    lost += stopped_beside_whole(runs) + failed_beside_whole(runs) + others
    repeated = 0 if others else len(scored) - len(each)
    seedless = len(everything) - len(runs)
    return RunGroup(label, everything, each, scores, lost, repeated, seedless)


def other_jobs(runs: Sequence[Run]) -> int:
    """How many whole runs of scripts have the setting and seed of another one, and are of another
    job.

    Those of `--again` have an identity of their own for each number.
    """
    jobs: dict[tuple[Any, ...], Counter[str]] = {}
    for run in finished_or_all(with_seeds(runs)):
        known = run.provenance
        if run.is_foreign and "identity" in known:
            same = run.group, run.seed, known.get("again", 0)
            jobs.setdefault(same, Counter())[str(known["identity"])] += 1
    return sum(found.total() for found in jobs.values() if len(found) > 1)


def names_note(group: RunGroup) -> str:
    """That a group has runs of several names, or of no known settings; empty where it has not.

    A tracker may give each run a name of its own, which says nothing.
    """
    runs = finished_or_all(group.runs)
    names = sorted({*shared_names(runs)} - {""})
    is_shared = len(names) > 1 and not (runs[0].is_tracked and len(names) == len(runs))
    if not is_shared:  # `vit-0`, `vit-1` and others
        names = sorted({name.rstrip("0123456789").rstrip("-_ .") for name in names} - {""})
    has_names = 1 < len(names) < len(runs)
    is_unknown = len(runs) > 1 and all(run.is_unknown for run in runs)
    if NAME in runs[0].settings or not (has_names or is_unknown):
        return ""
    of_names = f"the runs of {', '.join(names[:-1])} and {names[-1]}" if has_names else ""
    advice = ": --by name tells them apart" if is_shared else ""
    have = "no known settings" if is_unknown else "one setting"
    return f"{of_names or f'its {len(runs)} runs'} have {have}, and count as one group{advice}"


def stopped_beside_whole(runs: Sequence[Run]) -> int:
    """How many runs a search stopped, where others of the group are whole."""
    return sum(run.pruned for run in runs) if any(run.is_whole for run in runs) else 0


def failed_beside_whole(runs: Sequence[Run]) -> int:
    """How many seeds failed, as one that diverges may, where others of the group are whole."""
    whole = {setting_and_seed(run) for run in runs if run.is_whole}
    failed = {setting_and_seed(run) for run in runs if run.state == "failed"}
    return len(failed - whole) if whole else 0


def lost_note(group: RunGroup, measure: Measure) -> str:
    """How many runs should have a place in the group's mean and have none; empty where none."""
    runs: list[Run] = with_seeds(group.runs)
    stopped, failed = stopped_beside_whole(runs), failed_beside_whole(runs)
    others, parts = other_jobs(runs), []
    if without := group.lost - stopped - failed - others:
        finished = sum(run.state == "finished" for run in runs)
        has = "has" if finished == 1 else "have"
        parts.append(f"{without} of {counted(finished, 'finished run')} {has} no finite "
                     f"{measure.label}")  # fmt: skip
    if stopped:
        was = "was" if stopped == 1 else "were"
        parts.append(f"{stopped} of {len(runs)} runs {was} stopped by the search")
    if failed:
        parts.append(f"{failed} of {len(runs)} runs failed")
    if others:
        parts.append(f"{others} runs of one setting and seed are of different jobs (identity in "
                     "provenance.json)")  # fmt: skip
    return "; ".join(parts)


def packages_note(group: RunGroup) -> str:
    """Which installed packages differ between a group's runs; empty where none is known to."""
    runs = {run.provenance.get("environment_digest", ""): run for run in group.scored}
    runs.pop("", None)
    if len(runs) < 2:
        return ""
    files = [Path(run.path) / "environment.txt" for run in runs.values()]
    listed = [set(path.read_text(errors="replace").split()) for path in files if path.is_file()]
    counts = Counter(line for lines in listed for line in lines)
    differ = sorted(line for line, count in counts.items() if count < len(listed))
    named = f" ({', '.join(differ[:4])}{' ...' if len(differ) > 4 else ''})" if differ else ""
    return f"its runs had {len(runs)} different sets of packages{named}"


# Runs that should differ and do not: their script does not read the seed, or what is searched.


def have_same_metrics(runs: Sequence[Run], measure: Measure) -> bool:
    """Whether several runs of scripts have another seed or other settings each, and yet every
    value is the same.
    """
    if len(runs) < 2 or not all(run.is_foreign for run in runs):
        return False
    asked = {repr((run.seed, sorted(without_code(run.settings).items()))) for run in runs}
    found = [results_of(run, measure) for run in runs]
    return len(asked) == len(runs) and len(set(map(repr, found))) == 1 and bool(found[0])


def without_code(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a script can read."""
    return {key: value for key, value in settings.items() if key not in CODE}


CURVE = "its curve"


def results_of(run: Run, measure: Measure) -> list[tuple[str, Any]]:
    """What is compared, with its curve; where that may be equal by chance, also the other final
    values of a run without times.
    """
    curve = run.curves.get(measure.metric)
    if curve and is_telling(curve.refined):  # a memory or a load differs anyway
        return [(measure.metric, run.final(measure.metric)), (CURVE, curve.refined)]
    finals = {k: v for k, v in run.finals.items() if k == measure.metric or not is_time(k)}
    curves = {f"{name} over steps": one.refined for name, one in run.curves.items()}
    return sorted((finals | curves).items())


def same_metrics_note(runs: Sequence[Run], measure: Measure) -> str:
    """A question to the reader of a report; empty where the runs differ."""
    if not have_same_metrics(runs, measure):
        return ""
    is_alone = results_of(runs[0], measure)[-1][0] == CURVE
    what = f"values of {measure.metric}" if is_alone else "metrics"
    differ = dict.fromkeys(differing_keys(list(runs)))
    keys = list(without_code(differ)) or [str(runs[0].provenance.get("seed_key", SEED)).lstrip("+")]
    return (
        f"{len(runs)} runs have exactly the same {what}; does the script read {' and '.join(keys)}?"
    )
