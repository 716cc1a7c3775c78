"""The rows of the benchmark: macro means over rooms, aims, and each room."""

import statistics
from collections.abc import Sequence

import numpy as np
from common.report import Row, row
from common.rooms.figures import COVERAGE, MEASURES, Figures
from common.rooms.fine_tuning import CHOICES, FineTuned
from common.rooms.sides import (
    BEST_OF_FRAME,
    BEST_OF_ROOM,
    FACTOR,
    NAMES,
    OTHER,
    PSEUDO,
    REFINED,
    UNCALIBRATED,
)

from zoerefine.lab.analysis.statistics.significance import half_width

RESAMPLES = 10_000
Rooms = dict[str, Figures]  # the figures of each side


def mean_over_trainings(found: Sequence[Rooms]) -> Rooms:
    """Each figure's mean over the trainings that tested its room."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for sides in found:
        for side, rooms in sides.items():
            for room, figures in rooms.items():
                for measure, value in figures.items():
                    of_room = values.setdefault(side, {}).setdefault(room, {})
                    of_room.setdefault(measure, []).append(value)
    return {
        side: {
            room: {measure: statistics.mean(some) for measure, some in figures.items()}
            for room, figures in sorted(rooms.items())
        }
        for side, rooms in values.items()
    }


def macro_rows(sides: Rooms) -> list[Row]:
    """Of each side and measure: the mean over rooms and half of its 95% interval."""
    rows = []
    for side in names_of(sides):
        for measure, unit in MEASURES.items():
            values = column(sides[side], measure)
            if values:
                name = f"mean over rooms: {side}: {measure}"
                rows.append(row(name, statistics.mean(values), unit))
                if len(values) > 1:
                    rows.append(row(f"{name}, +- (95%)", half_width(values), unit))
    return rows


def macro_table(sides: Rooms) -> str:
    """The means over rooms as a table: a line for each side, a column for each measure."""
    width = max(map(len, sides))
    heads = (measure.partition(" of ")[0] for measure in MEASURES)
    lines = ["mean over rooms".ljust(width) + "".join(f"{head:>13}" for head in heads)]
    for side in names_of(sides):
        cells = (column(sides[side], measure) for measure in MEASURES)
        figures = (f"{statistics.mean(cell):13.3f}" if cell else " " * 13 for cell in cells)
        lines.append(side.ljust(width) + "".join(figures))
    return "\n".join(lines)


def names_of(sides: Rooms) -> list[str]:
    """The sides in the order of the tables."""
    first = [name for name in NAMES if name in sides]
    return [*first, *(name for name in sides if name not in first)]


def column(rooms: Figures, measure: str) -> list[float]:
    """A measure of every room that has it."""
    return [figures[measure] for figures in rooms.values() if measure in figures]


def aim_rows(sides: Rooms) -> list[Row]:
    """What the refiner should reach in rooms never seen, and what explains the distance."""
    refined, factor, pseudo, other = (
        np.array(column(sides[side], "AbsRel")) for side in (REFINED, FACTOR, PSEUDO, OTHER)
    )
    rows = [
        row("rooms", len(refined), "rooms"),
        *ratio_rows("refined, of the single factor", refined, factor, at_most=0.75),
        row("rooms where refined beats the single factor", float(np.mean(refined < factor)),
            "share", at_least=0.8),
        row("worst room, refined of the pseudo depth", np.max(refined / pseudo), "x", at_most=1.1),
        row("worst room, single factor of the pseudo depth", np.max(factor / pseudo), "x"),
        row("another's pseudo depth, of the own", other.mean() / refined.mean(), "x",
            at_least=1.5),
        ring_row(REFINED, sides, at_most=1.3),
        ring_row(FACTOR, sides),
    ]  # fmt: skip
    covered = column(sides[REFINED], COVERAGE)
    if covered:
        rows.append(row(f"refined: {COVERAGE}", statistics.mean(covered), "share", 0.85, 0.95))
        inside = statistics.mean([0.85 <= value <= 0.95 for value in covered])
        rows.append(row(f"rooms with a {COVERAGE} of 0.85 to 0.95", inside, "share"))
    for side in (UNCALIBRATED, BEST_OF_ROOM, BEST_OF_FRAME):
        values = np.array(column(sides[side], "AbsRel"))
        rows += ratio_rows(f"{side}, of the single factor", values, factor)
    return rows


def ring_row(side: str, sides: Rooms, at_most: float | None = None) -> Row:
    """The error at the border over the error inside, over rooms measured in both."""
    border, inside = (column(sides[side], name) for name in ("border ring", "inside"))
    value = statistics.mean(border) / statistics.mean(inside)
    return row(f"{side}: border ring, of the inside", value, "x", at_most=at_most)


def ratio_rows(
    name: str, ours: np.ndarray, theirs: np.ndarray, at_most: float | None = None
) -> list[Row]:
    """The ratio of two macro means with a 95% interval: a bootstrap over rooms."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(ours), (RESAMPLES, len(ours)))
    low, high = np.percentile(ours[drawn].mean(1) / theirs[drawn].mean(1), [2.5, 97.5])
    return [
        row(name, ours.mean() / theirs.mean(), "x", at_most=at_most),
        row(f"{name}, low (95%)", low, "x"),
        row(f"{name}, high (95%)", high, "x"),
    ]


def fine_tuning_rows(found: Sequence[FineTuned]) -> list[Row]:
    """Mean over rooms of the ratio to the single factor, for each choice of labelled frames."""
    rows = []
    for choice in CHOICES:
        of_choice = [one for one in found if one.choice == choice]
        if not of_choice:
            continue
        name = f"fine-tuned on {choice}"
        ratios = [one.refined / one.factor for one in of_choice]
        own = statistics.mean(one.own_factor / one.factor for one in of_choice)
        rows += [
            row(f"{name}, of the single factor", statistics.mean(ratios), "x", at_most=0.5),
            *([row(f"{name}, of the single factor, +- (95%)", half_width(ratios), "x")]
              if len(ratios) > 1 else []),
            row(f"the best factor of {choice}, of the single factor", own, "x"),
            row(f"{name}: longest training", max(one.seconds for one in of_choice), "s",
                at_most=60),
        ]  # fmt: skip
        rows += [row(f"{one.room}: {name}, of the single factor", one.refined / one.factor, "x")
                 for one in of_choice]  # fmt: skip
    return rows


def room_rows(sides: Rooms) -> list[Row]:
    """AbsRel of every side in every room, and the refiner's other measures there."""
    rows = []
    for room in sides[REFINED]:
        for side in names_of(sides):
            for measure, value in sides[side].get(room, {}).items():
                if measure == "AbsRel" or side == REFINED:
                    rows.append(row(f"{room}: {side}: {measure}", value, MEASURES[measure]))
    return rows
