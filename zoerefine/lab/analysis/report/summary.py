"""The report's summary: what the numbers mean, in sentences."""

from collections.abc import Sequence

from zoerefine.base.texts import counted
from zoerefine.lab.analysis.groups import RunGroup, same_metrics_note
from zoerefine.lab.analysis.measure import Measure
from zoerefine.lab.analysis.pictures.captions import pseudo_label
from zoerefine.lab.analysis.statistics.comparisons import Difference, seeds_note
from zoerefine.lab.analysis.statistics.seeds import ENOUGH_RUNS, ESTIMATOR
from zoerefine.lab.runs.collect import Collection


def summarize(
    collection: Collection,
    groups: Sequence[RunGroup],
    differences: Sequence[Difference],
    measure: Measure,
) -> list[str]:
    """The best group, the next one, and what limits the conclusions."""
    scored = [group for group in groups if len(group.scores)]
    lines = [best_line(scored[0], groups, measure)] if scored else []
    if differences:
        lines.append(comparison_line(with_best(differences, scored), measure))
    if note := seeds_note(groups, differences):
        lines.append(note)
    lines += unread_lines(groups)
    few = [group for group in scored if len(group.scores) < ENOUGH_RUNS]
    if few:
        lines.append(
            f"{len(few)} of {counted(len(scored), 'group')} have fewer than {ENOUGH_RUNS} seeds; "
            "no conclusion is drawn from them."
        )
    unfinished = [run for run in collection.runs if run.state != "finished"]
    if unfinished:
        lines.append(
            f"Not finished: {counted(len(unfinished), 'run')}; their results so far are included."
        )
    if collection.left_out:
        count = counted(len(collection.left_out), "run")
        lines.append(f"Left out: {count}; the table of runs gives the reasons.")
    return lines


def unread_lines(groups: Sequence[RunGroup]) -> list[str]:
    """What a script seems not to read: what is searched, or its seed."""
    everything = [run for group in groups for run in group.runs]
    if len(groups) > 1 and (note := same_metrics_note(everything)):
        return [f"{note} They are no independent results."]
    notes = ((group.label, same_metrics_note(group.runs)) for group in groups)
    return [f"{label}: {note} They count as one." for label, note in notes if note]


def best_line(best: RunGroup, groups: Sequence[RunGroup], measure: Measure) -> str:
    """The best group beside the pseudo depth."""
    known = [measure.pseudo(run) for run in best.scored]
    pseudo = [value for value in known if value is not None]
    before = f"; the {pseudo_label(groups)} has {sum(pseudo) / len(pseudo):.4f}" if pseudo else ""
    seeds = f"{ESTIMATOR}, {len(best.scores)} seeds" if len(best.scores) > 1 else "one seed"
    value = f"{measure.label} {best.mean:.4f}"
    return f"Best{measure.on_place}: {best.label}, {value} ({seeds}){before}."


def with_best(differences: Sequence[Difference], scored: Sequence[RunGroup]) -> Difference:
    """The comparison of the best group with the next one, or with the baseline."""
    best, pairs = scored[0].label, {(d.first, d.second): d for d in differences}
    ranked = [group.label for group in scored]
    for label in ranked[1:]:
        if found := pairs.get((best, label)) or pairs.get((label, best)):
            return found
    raise AssertionError("every comparison has the best group or a baseline")


def comparison_line(found: Difference, measure: Measure) -> str:
    """Two groups in a sentence."""
    parts = [f"difference of the means {found.difference:+.4f}"]
    if found.interval:
        parts.append("95% interval {:+.4f} to {:+.4f}".format(*found.interval))
    if found.probability is not None:
        parts.append(f"{measure.better} in {found.probability:.0%} of the pairs of runs")
    if found.scenes:
        parts.append(f"{measure.better} on {found.scenes_won} of {counted(found.scenes, 'scene')}")
    line = (
        f"{found.first} against {found.second}: {', '.join(parts)}; {named(found.verdict, found)}."
    )
    if found.scenes_p_adjusted is not None:
        line += f" By scene, for these trainings: {named(found.scenes_verdict, found)}."
    return line


def named(verdict: str, found: Difference) -> str:
    """A verdict with the groups' names."""
    return verdict.replace("the first", found.first).replace("the second", found.second)
