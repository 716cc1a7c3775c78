"""How far do a few metric points a picture go, without any training?

Points are simulated from the true depth of real frames (`--data`; without it, of a small synthetic
world, whose figures mean nothing): random pixels, corners of the picture, the means of 8x8 zones,
and one row, each with noise and outliers. Sides: the pseudo depth; the median factor of the points;
the points spread by `zoerefine.depth.points`; and, for reference, the best factor of each frame,
which needs the truth. A figure is AbsRel, the mean over rooms of the mean over their frames. The
coverage of a room is the share of its pixels whose truth is inside the 90% band. Only rooms with
RECORDED frames or more count for the share of rooms with a coverage of .85 to .95.

Five, 50, 200 and 500 random points without noise are the protocol of NYU's published figures, whose
mean is over frames; of more than 400 points 400 are used.

The settings of the spreading were chosen by these figures in one collection of rooms (two frames a
room), so those are slightly optimistic; another camera's frames, by `--data`, are a clean test.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import torch
from common.report import Row, options, report, row
from common.rooms.sides import best_factor
from common.timing import in_turns

from zoerefine.base.depth_limits import FARTHEST_M, NEAREST_M
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.cli import run_command
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.dataset import Dataset
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.metric_points import MetricPoints
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.points.band import band
from zoerefine.depth.points.for_engines import WITHOUT_POINTS
from zoerefine.depth.points.simulate import PointSimulation, simulated, truth_and_picture
from zoerefine.depth.points.spread import spread_points, tensor_of

Array = np.ndarray
CASES = {
    "5 points": PointSimulation(count=5, noise=0),
    "10 points": PointSimulation(count=10, noise=0),
    "20 points": PointSimulation(count=20, noise=0),
    "50 points": PointSimulation(count=50, noise=0),
    "200 points": PointSimulation(count=200, noise=0),
    "300 points": PointSimulation(count=300, noise=0),
    "500 points": PointSimulation(count=500, noise=0),
    "50 points, 3% noise": PointSimulation(count=50),
    "50 points, 10% noise": PointSimulation(count=50, noise=0.1),
    "50 points, 3% noise, 10% outliers": PointSimulation(count=50, outliers=0.1),
    "50 points, 3% noise, 20% outliers": PointSimulation(count=50, outliers=0.2),
    "50 corners, 3% noise": PointSimulation("corners"),
    "8x8 zones, 3% noise": PointSimulation("zones"),
    "one row of 50, 3% noise": PointSimulation("beam"),
}
PUBLISHED = ("5 points", "50 points", "200 points", "500 points")
RECORDED, LEAST_COVERAGE, MOST_COVERAGE = 6, 0.85, 0.95
FRAME_SIZE = 480, 640  # of the timing
REAL_TIME_MS = 33.3
PROCESSOR_ROUNDS = 15


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, help="real frames of many scenes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="points-") as folder:
        root = args.data or Path(folder) / "world"
        if not args.data:
            say("no --data: a small synthetic world, to show that the program works")
            synthesize(root, 4, 1, 4, 0, 120, 160)
        dataset = open_dataset(root)
        rooms = errors(dataset, one_of=4 if args.quick else 1)
    rows = error_rows(over_rooms(rooms)) + published_rows(rooms) + coverage_rows(rooms)
    rows += latency_rows(2.0 if args.quick else 10.0)
    report(rows, args, timed=False)


Rooms = dict[str, list[dict[str, float]]]  # the figures of each room's frames, by name


def errors(dataset: Dataset, one_of: int) -> Rooms:
    """AbsRel of every side and coverage of every band, of every frame."""
    rooms: Rooms = {}
    frames = [f for f in dataset.frames if f.depth is not None and f.zoe is not None][::one_of]
    for frame in track(frames, len(frames), "spreading points", "frame"):
        assert frame.zoe is not None
        truth_m, rgb = truth_and_picture(dataset, frame)
        pseudo_m: Array = (read_zoe(frame.zoe) * ZOE_UNIT_M).astype(np.float32)
        if pseudo_m.shape != truth_m.shape:
            pseudo_m = cv2.resize(pseudo_m, truth_m.shape[::-1], interpolation=cv2.INTER_LINEAR)
        valid = (truth_m > NEAREST_M) & (truth_m < FARTHEST_M) & (pseudo_m > 0)
        if valid.any():
            sides = corrected(pseudo_m, truth_m, valid, rgb, f"{frame.clip}/{frame.name}")
            figures = {}
            for name, depth_m, spread in sides:
                figures[name] = abs_rel(depth_m[valid], truth_m[valid])
                if spread is not None:
                    apart = np.abs(np.log(truth_m[valid] / depth_m[valid]))
                    figures[f"{name}: coverage"] = float(np.mean(apart <= spread[valid]))
            rooms.setdefault(frame.scene, []).append(figures)
    return rooms


def over_rooms(rooms: Rooms) -> dict[str, float]:
    """Means over rooms."""
    names = next(iter(rooms.values()))[0]
    return {name: float(np.mean(of_rooms(rooms, name))) for name in names}


def of_rooms(rooms: Rooms, name: str, least: int = 1) -> list[float]:
    """A figure of every room with so many frames."""
    return [
        float(np.mean([one[name] for one in room])) for room in rooms.values() if len(room) >= least
    ]


def corrected(
    pseudo_m: Array, truth_m: Array, valid: Array, rgb: Array, name: str
) -> Iterator[tuple[str, Array, Array | None]]:
    """Every side's depth, [H, W] metres, and the spread of those that have one."""
    yield "pseudo depth", pseudo_m, None
    pixels = (torch.from_numpy(one[valid]) for one in (truth_m, pseudo_m))
    yield "best factor of each frame", pseudo_m * best_factor(*pixels), None
    for case, simulation in CASES.items():
        points = simulated(simulation, truth_m, rgb, name)
        yield f"{case}: median factor", pseudo_m * median_factor(pseudo_m, points), None
        depth, rows = torch.from_numpy(pseudo_m)[None, None], tensor_of(points, pseudo_m)
        spread = band(depth, rows)[0, 0].numpy() if rows.shape[1] else np.full_like(
            pseudo_m, WITHOUT_POINTS
        )  # fmt: skip
        yield f"{case}: spread", spread_points(pseudo_m, points), spread


def median_factor(pseudo_m: Array, points: MetricPoints) -> float:
    """The median of true / pseudo depth over the points: the usual way to use them."""
    x, y, depth_m, _ = tensor_of(points, pseudo_m)[0].double().numpy().T
    if not len(x):
        return 1.0
    return float(np.median(depth_m / pseudo_m[np.rint(y).astype(int), np.rint(x).astype(int)]))


def abs_rel(depth_m: Array, truth_m: Array) -> float:
    """Mean of |depth - truth| / truth over pixels."""
    return float(np.mean(np.abs(depth_m.clip(NEAREST_M, FARTHEST_M) - truth_m) / truth_m))


def error_rows(found: dict[str, float]) -> list[Row]:
    """A row for each side; spreading beside the median factor of the same points."""
    rows = [
        row(name, found[name], "AbsRel") for name in ("pseudo depth", "best factor of each frame")
    ]
    for case in CASES:
        median, spread = (found[f"{case}: {side}"] for side in ("median factor", "spread"))
        rows.append(row(f"{case}: median factor", median, "AbsRel"))
        rows.append(row(f"{case}: spread", spread, "AbsRel"))
        rows.append(row(f"{case}: spread / median factor", spread / median, "", at_most=1.0))
    clean = found["50 points, 3% noise: spread"]
    for share in (10, 20):
        value = found[f"50 points, 3% noise, {share}% outliers: spread"] / clean
        rows.append(row(f"cost of {share}% outliers", value, "times", at_most=1.15))
    return rows


def published_rows(rooms: Rooms) -> list[Row]:
    """Means over frames, as others publish them."""
    frames = [one for room in rooms.values() for one in room]
    return [
        row(f"{case}, mean over frames", float(np.mean([one[f"{case}: spread"] for one in frames])),
            "AbsRel")
        for case in PUBLISHED
    ]  # fmt: skip


def coverage_rows(rooms: Rooms) -> list[Row]:
    """The share of pixels inside the band, and of rooms where it is .85 to .95."""
    rows = []
    for case in CASES:
        name = f"{case}: spread: coverage"
        rows.append(row(f"{case}: coverage", float(np.mean(of_rooms(rooms, name))), "share"))
        recorded = np.array(of_rooms(rooms, name, RECORDED))
        if len(recorded):
            inside = (recorded >= LEAST_COVERAGE) & (recorded <= MOST_COVERAGE)
            rows.append(row(f"{case}: rooms with coverage .85 to .95", float(inside.mean()),
                            "share", at_least=2 / 3))  # fmt: skip
    return rows


def latency_rows(seconds: float) -> list[Row]:
    """Milliseconds to spread points over a frame, and those that processors spend on it."""
    rng = np.random.default_rng(0)
    depth_m = cv2.resize(
        rng.uniform(1, 5, (6, 8)).astype(np.float32), FRAME_SIZE[::-1],
        interpolation=cv2.INTER_CUBIC,
    )  # fmt: skip

    def spread(count: int) -> Callable[[], object]:
        y, x = rng.integers(0, FRAME_SIZE[0], count), rng.integers(0, FRAME_SIZE[1], count)
        true_m = depth_m[y, x] * rng.lognormal(0, 0.1, count)
        points = MetricPoints(x.astype(float), y.astype(float), true_m, np.zeros(count))
        return lambda: spread_points(depth_m, points)

    sides = {f"{count} points": spread(count) for count in (50, 400)}
    times = in_turns(sides, seconds)
    return [
        *(row(f"{name}, 480x640", np.median(ms), "ms", at_most=REAL_TIME_MS)
          for name, ms in times.items()),
        *(row(f"{name}, 480x640, processor time", processor_ms(run), "ms")
          for name, run in sides.items()),
    ]  # fmt: skip


def processor_ms(run: Callable[[], object]) -> float:
    """Milliseconds of processor time of a call, the median: other processes hardly change it."""
    times = []
    for _ in range(PROCESSOR_ROUNDS):
        start = time.process_time()
        run()
        times.append(1e3 * (time.process_time() - start))
    return float(np.median(times))


if __name__ == "__main__":
    run_command(main)
