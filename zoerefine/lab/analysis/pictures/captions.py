"""The texts under the graph: what is drawn, and where the runs come from."""

from collections.abc import Sequence

from zoerefine.base.texts import counted
from zoerefine.lab.analysis.cost import front_of_means, group_costs
from zoerefine.lab.analysis.group_names import shortened
from zoerefine.lab.analysis.groups import RunGroup
from zoerefine.lab.analysis.measure import Measure
from zoerefine.lab.analysis.pictures.style import PALETTE
from zoerefine.lab.analysis.statistics.seeds import ENOUGH_RUNS, ESTIMATOR, INTERVAL
from zoerefine.lab.runs.collect import Collection
from zoerefine.lab.runs.record import Run

SPLIT_PREFIXES = ("val.", "test.")  # of metrics of our own runs that belong to a checkpoint
NAMED = 4  # runs that a sentence names


def legend(groups: Sequence[RunGroup], measure: Measure) -> list[str]:
    """What lines, bands, points, bars and numbers are."""
    seeds = [len(group.scores) for group in groups if len(group.scores)]
    parts = [f"Line and number: {ESTIMATOR}." if max(seeds, default=0) > 1 else "One seed each."]
    if max(seeds, default=0) >= ENOUGH_RUNS:
        parts.append(f"Band and bar: {INTERVAL} of the mean.")
    elif max(seeds, default=0) > 1:
        parts.append("Thin lines: single runs.")
    parts += points_and_dashes(groups, measure)
    if any(run.pruned for group in groups for run in group.runs):
        parts.append("Cross: stopped early by the search.")
    if len(front_of_means(group_costs(groups)[0], measure.sign)) > 1:
        parts.append("Grey steps: Pareto front of the means.")
    return parts


def points_and_dashes(groups: Sequence[RunGroup], measure: Measure) -> list[str]:
    """What the points of single runs are, and the dashed line, where there is one."""
    runs = [run for group in groups for run in group.runs]
    if measure.metric:
        return [f"Small points: runs, each with its final value: {final_value(runs, measure)}."]
    return [
        f"Small points: runs, each at its checkpoint {checkpoint(runs)}.",
        f"Dashed: {pseudo_label(groups)}.",
    ]


def final_value(runs: Sequence[Run], measure: Measure) -> str:
    """Which value of another metric counts as a run's final one."""
    if measure.metric.startswith(SPLIT_PREFIXES) and not any(run.is_foreign for run in runs):
        return f"that of its checkpoint {checkpoint(runs)}"
    return "the one that it reported, otherwise that of its last step"


def checkpoint(runs: Sequence[Run]) -> str:
    """Which checkpoint our own runs were evaluated at."""
    best, last = "with the lowest validation AbsRel", "of the last epoch"
    evaluated = [bool(run.curve) for run in runs]
    if any(evaluated) and not all(evaluated):
        return f"{best} (without validation scenes: {last})"
    return best if any(evaluated) else last


def facts(collection: Collection, groups: Sequence[RunGroup], measure: Measure) -> list[str]:
    """Which commits and data the runs come from, and what is missing from the graph and why."""
    runs = collection.runs
    commits = sorted({run.commit[:8] for run in runs})
    measured = [run for run in runs if run.results]
    data = sorted({f"{r.results.get('data')} {str(r.results.get('data_digest'))[:8]}"
                   for r in measured})  # fmt: skip
    parts = [
        f"{counted(len(runs), 'run')}, commit {shortened(', '.join(commits), 60)}.",
        *([] if measure.metric else [f"Data: {shortened('; '.join(data), 80) or 'unknown'}."]),
    ]
    if len({str(run.results.get("data_digest")) for run in measured}) > 1:
        parts.append("NOT COMPARABLE: different data.")
    if min((len(group.scores) for group in groups if len(group.scores)), default=0) < ENOUGH_RUNS:
        parts.append(f"Fewer than {ENOUGH_RUNS} seeds in a group: no conclusions.")
    expected = runs if measure.metric else measured
    unscored = [run for run in expected if measure.score(run) is None]
    if unscored:
        problem = f"Not measured on {measure.place}" if measure.place else f"No {measure.label}"
        parts.append(f"{problem}: {named(unscored)}.")
    unfinished = [run for run in runs if run.state != "finished"]
    if unfinished:
        parts.append(f"Not finished: {named(unfinished, state=True)}.")
    if len(groups) > len(PALETTE):
        parts.append(f"{counted(len(groups) - len(PALETTE), 'more group')} in groups.csv.")
    if collection.left_out:
        parts.append(f"Left out: {counted(len(collection.left_out), 'run')}, see runs.csv.")
    return parts


def named(runs: Sequence[Run], state: bool = False) -> str:
    """The first few runs by name, and how many more there are."""
    names = [shortened(r.name) + (f" ({r.state})" if state else "") for r in runs[:NAMED]]
    more = [f"{len(runs) - NAMED} more"] if len(runs) > NAMED else []
    return ", ".join(names + more)


def pseudo_label(groups: Sequence[RunGroup]) -> str:
    """What the pseudo depth of these runs is called."""
    labels = [run.results.get("pseudo_label") for group in groups for run in group.runs]
    return next((shortened(str(label)) for label in labels if label), "pseudo depth")
