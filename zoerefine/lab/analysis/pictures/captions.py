"""The texts of the graph: under it, what is drawn and whose runs; in it, labels beside points."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zoerefine.base.messages import counted, first_few
from zoerefine.lab.analysis.costs import front_of_means, group_costs
from zoerefine.lab.analysis.group_names import shortened
from zoerefine.lab.analysis.groups import Measure, RunGroup, not_comparable, samples
from zoerefine.lab.analysis.pictures.style import PALETTE
from zoerefine.lab.analysis.statistics.significance import ENOUGH_RUNS, INTERVAL
from zoerefine.lab.runs.record import Collection, Run

SPLIT_PREFIXES = ("val.", "test.")  # of metrics of our own runs that belong to a checkpoint
NAMED = 4  # runs that a sentence names


def legend(groups: Sequence[RunGroup], measure: Measure) -> list[str]:
    """What lines, bands, points, bars and numbers are."""
    seeds = [len(group.scores) for group in groups if len(group.scores)]
    mean = f"Line and number: mean over {samples(groups)}."
    parts = [mean if max(seeds, default=0) > 1 else "One seed each."]
    if max(seeds, default=0) >= ENOUGH_RUNS:
        parts.append(f"Band and bar: {INTERVAL} of the mean.")
    elif max(seeds, default=0) > 1:
        parts.append("Thin lines: single runs.")
    steps = [steps_of(group, measure) for group in groups]
    if any(max(one[0] for one in some) > min(one[-1] for one in some) for some in steps if some):
        parts.append("Where the steps of a group's runs do not meet, the line is its longest run.")
    elif any(len({*map(tuple, some)}) > 1 for some in steps):
        parts.append("Between the steps of a run its values are interpolated.")
        if any(len({one[-1] for one in some}) > 1 for some in steps):
            parts.append("A line ends where the first run of its group ends.")
    parts += points_and_dashes(groups, measure)
    if any(run.pruned for group in groups for run in group.runs):
        parts.append("Cross: stopped early by the search.")
    if len(front_of_means(group_costs(groups)[0], measure.sign)) > 1:
        parts.append("Grey steps: Pareto front of the means.")
    return parts


def steps_of(group: RunGroup, measure: Measure) -> list[list[float]]:
    """The steps of each curve of a group."""
    return [curve.epochs for run in group.drawn if (curve := measure.curve(run))]


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
    if other := not_comparable(runs, measure):
        parts.append(f"NOT COMPARABLE: different {other}.")
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
    names = [shortened(run.name) + (f" ({run.state})" if state else "") for run in runs]
    return first_few(names, NAMED)


def pseudo_label(groups: Sequence[RunGroup]) -> str:
    """What the pseudo depth of these runs is called."""
    labels = [run.results.get("pseudo_label") for group in groups for run in group.runs]
    return next((shortened(str(label)) for label in labels if label), "pseudo depth")


LINE_HEIGHT = 1.35  # of a label, in font sizes
CLEARANCE = 4  # pixels kept free around a point
# Where a text is put: its offset from the point in font points, and which of its sides is there.
DIRECTIONS = (
    (1, 0, "left", "center"), (1, 1, "left", "bottom"), (0, 1, "center", "bottom"),
    (1, -1, "left", "top"), (0, -1, "center", "top"), (-1, 0, "right", "center"),
    (-1, 1, "right", "bottom"), (-1, -1, "right", "top"),
)  # fmt: skip
PLACES = tuple((7 * k * x, 7 * k * y, h, v) for k in (1, 2, 4) for x, y, h, v in DIRECTIONS)


@dataclass(frozen=True)
class Label:
    """A text that belongs to a point, in data coordinates."""

    x: float
    y: float
    text: str
    color: str


def place_labels(
    axis: Any, labels: Sequence[Label], points: Sequence[tuple[float, float]], size: float = 8
) -> None:
    """Write each label beside its point, where it covers the least of the points and labels.

    The layout must be final: texts are measured in pixels.
    """
    from matplotlib.transforms import Bbox

    renderer = axis.figure.canvas.get_renderer()
    frame = axis.get_window_extent(renderer)
    pixels = [axis.transData.transform(point) for point in points]
    taken = [
        Bbox.from_extents(x - CLEARANCE, y - CLEARANCE, x + CLEARANCE, y + CLEARANCE)
        for x, y in pixels
    ]
    for label in labels:
        candidates = []
        for x, y, horizontal, vertical in PLACES:
            text = axis.annotate(
                label.text, (label.x, label.y), xytext=(x, y), textcoords="offset points",
                fontsize=size, color=label.color, ha=horizontal, va=vertical,
                annotation_clip=False,
            )  # fmt: skip
            box = text.get_window_extent(renderer)
            covered = sum(overlap(box, other) for other in taken) + area(box) - overlap(box, frame)
            candidates.append((covered, text, box))
            if covered == 0:
                break
        _, chosen, box = min(candidates, key=lambda candidate: candidate[0])
        for _, text, _ in candidates:
            if text is not chosen:
                text.remove()
        taken.append(box)


def spread_labels(axis: Any, texts: Sequence[Any], size: float = 8) -> None:
    """Move texts at the right of an axis up or down until they keep a line's distance.

    The texts' y is in data coordinates; their order is kept, and all stay beside the axis.
    """
    if not texts:
        return
    points = axis.get_window_extent().height * 72 / axis.figure.dpi
    to_share = axis.transData + axis.transAxes.inverted()
    ordered = sorted(texts, key=lambda text: text.get_position()[1])
    shares = [float(to_share.transform((1, text.get_position()[1]))[1]) for text in ordered]
    for text, share in zip(ordered, spread(shares, size * LINE_HEIGHT / points), strict=True):
        text.set_transform(axis.transAxes)
        text.set_position((text.get_position()[0], share))


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Rising places in 0..1, at least `gap` apart, with the least sum of squared moves.

    Less i gaps, the i-th place need only rise: that is isotonic regression, solved by pooling
    adjacent violators.
    """
    pools: list[tuple[float, int]] = []  # mean and count
    for index, place in enumerate(places):
        mean, count = place - index * gap, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean = (mean * count + other * others) / (count + others)
            count += others
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    highest = max(0.0, 1 - (len(places) - 1) * gap)
    return [min(max(mean, 0.0), highest) + index * gap for index, mean in enumerate(means)]


def area(box: Any) -> float:
    """Of a box, in square pixels."""
    return float(box.width * box.height)


def overlap(a: Any, b: Any) -> float:
    """Of two boxes, in square pixels."""
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return float(max(0, width) * max(0, height))
