"""The depths that metric points correct, with and without a refiner, in rooms never seen."""

import numpy as np
from common.report import Row, row
from common.rooms.figures import Predicted, Side
from common.rooms.tables import Rooms, column, ratio_rows

from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.points.simulate import PointSimulation
from zoerefine.depth.points.spread import spread, spread_twice
from zoerefine.depth.training.point_inputs import correct

FIFTY, OUTLIERS, ZONES = "50 points", "50 points, 20% outliers", "8x8 zones"
CASES = {
    FIFTY: PointSimulation("random", 50),
    OUTLIERS: PointSimulation("random", 50, outliers=0.2),
    ZONES: PointSimulation("zones"),
    "5 points": PointSimulation("random", 5),
    "50 corners": PointSimulation("corners", 50),
    "one row of 50": PointSimulation("beam", 50),
}  # with 3% noise
ALONE, AFTER, INPUT = "points alone", "refined, then points", "refined with points as an input"
NONE = "refined without points, with the input"


def point_sides(plain: RefinerNetwork, with_input: RefinerNetwork) -> dict[str, Side]:
    """Every way to use the points of every case, and no points with the input for them."""

    def points_of(case: str, batch: DeviceBatch):
        return CASES[case](batch.depth_m, batch.rgb01, batch.index.numpy())

    def alone(case: str) -> Side:
        return lambda batch: Predicted(spread_twice(batch.zoe_m, points_of(case, batch)))

    def after(case: str) -> Side:
        return lambda batch: Predicted(
            spread(plain(batch.rgb01, batch.zoe_m), points_of(case, batch))
        )

    def as_input(case: str) -> Side:
        def side(batch: DeviceBatch) -> Predicted:
            points = points_of(case, batch)
            seen = correct(batch, points)
            return Predicted(spread(with_input(seen.picture01, seen.zoe_m), points))

        return side

    plain.eval()
    with_input.eval()
    found = {NONE: lambda batch: Predicted(with_input(batch.rgb01, batch.zoe_m))}
    for case in CASES:
        found |= {f"{case}: {ALONE}": alone(case), f"{case}: {AFTER}": after(case),
                  f"{case}: {INPUT}": as_input(case)}  # fmt: skip
    return found


def point_rows(sides: Rooms, refined: str) -> list[Row]:
    """What points should reach; `refined` is the side of the refiner without points."""

    def errors(side: str) -> np.ndarray:
        return np.array(column(sides[side], "AbsRel"))

    rows = []
    for case in CASES:
        ours = errors(f"{case}: {INPUT}")
        rows += ratio_rows(f"{case}: {INPUT}, of {ALONE}", ours, errors(f"{case}: {ALONE}"),
                           at_most=1.0)  # fmt: skip
        rows += ratio_rows(f"{case}: {INPUT}, of {AFTER}", ours, errors(f"{case}: {AFTER}"))
        value = ours.mean() / errors(refined).mean()
        rows.append(row(f"{case}: {INPUT}, of the refiner without points", value, "x", at_most=1.0))
    rows += ratio_rows(f"{NONE}, of the refiner without it", errors(NONE), errors(refined),
                       at_most=1.02)  # fmt: skip
    for way in (ALONE, INPUT):
        cost = errors(f"{OUTLIERS}: {way}").mean() / errors(f"{FIFTY}: {way}").mean()
        rows.append(row(f"{way}: cost of 20% outliers", cost, "times", at_most=1.15))
    return rows
