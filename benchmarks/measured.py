"""How far do a few distances go that were measured once in a room, without any training?

Rooms of real frames (`--data`; without it, of a small synthetic world, whose figures mean nothing)
are left out in turn, those of one building together. The prior of `zoerefine.depth.points.room` is
fitted to the other rooms. Measurements are simulated from the true depth of a few frames: random
pixels with 3% noise, also with one of fifteen wrong. The rest of the room's frames is corrected.
`--unseen` adds a room of another camera, with the prior of all rooms of `--data`.

A figure is AbsRel of a sample of each frame's pixels, the mean over frames and draws. The *single
factor* is the best one of the other rooms. For reference: the best factor of each room and of each
frame, which need the truth. Only rooms with 20 frames or more are tested.

The form of the calibration and the width of its band were chosen by these figures, in rooms that
--data may name, so they are optimistic; of the kitchen that --unseen may name, the width is clean.

`--write-prior FILE` writes the prior of all rooms of `--data`, as the package ships it.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from common.report import Row, options, report, row
from common.rooms.sides import best_factor

from zoerefine.base.depth_limits import FARTHEST_M, NEAREST_M
from zoerefine.base.errors import run_command
from zoerefine.base.files.atomic import write_json
from zoerefine.base.progress import say, track
from zoerefine.depth.data.cache.decode import read_truth_m, read_zoe
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.points.room import Measurement, RoomCalibration, calibrate
from zoerefine.depth.points.room_prior import RoomPrior, TrueDepth, features, fit_prior

Array = np.ndarray
BUILDINGS = ("ist_",)  # beginnings of the names of rooms that are left out together
LEAST_FRAMES = 20
PIXELS, PRIOR_PIXELS, PRIOR_FRAMES = 1500, 20, 15  # of a frame, of a room
ROOM_PIXELS = 5000  # of a room, for the single factor
NOISE, WRONG_M = 0.03, (0.3, 8.0)


@dataclass(frozen=True)
class Case:
    """What is measured: points in each of some frames, some of all of them wrong."""

    frames: int
    points: int
    wrong: int = 0


CASES = {
    "3 frames of 5 points": Case(3, 5),
    "3 frames of 5 points, one wrong": Case(3, 5, 1),
    "3 frames of 5 points, three wrong": Case(3, 5, 3),
    "1 frame of 5 points": Case(1, 5),
    "nothing measured": Case(0, 0),
}
REFERENCES = "pseudo depth", "best factor of each room", "best factor of each frame"
# Of a case: at most this ratio to the single factor, its geometric mean, at least this share of
# rooms better than it, at most this ratio to the pseudo depth.
AIMS = {
    "3 frames of 5 points": (0.60, 0.65, 0.95, 1.05),
    "1 frame of 5 points": (0.78, None, 0.90, None),
}


@dataclass(frozen=True)
class Pixels:
    """A sample of a frame's pixels: features [N, 6], pseudo and true depth [N] in metres."""

    features: Array
    pseudo_m: Array
    true_m: Array


Rooms = dict[str, list[Pixels]]


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, help="real frames of many scenes")
    parser.add_argument("--unseen", type=Path, help="frames of another camera, one room")
    parser.add_argument("--write-prior", type=Path, metavar="FILE", help="write the prior there")
    parser.add_argument("--origin", default="", help="of the rooms, for --write-prior")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="measured-") as folder:
        root = args.data or Path(folder) / "world"
        if not args.data:
            say("no --data: a small synthetic world, to show that the program works")
            synthesize(root, 6, 1, 24, 0, 120, 160)
        rooms = rooms_of(root)
        unseen = rooms_of(args.unseen) if args.unseen else {}
    if args.write_prior:
        write_prior(args.write_prior, rooms, args.origin)
    draws = 2 if args.quick else 8
    found = dict(left_out(rooms, draws))
    rows = table(found)
    if unseen:
        prior, factor = prior_of(rooms), single_factor(rooms)
        merged = [frame for room in unseen.values() for frame in room]
        other = {args.unseen.name: of_room(merged, prior, factor, draws)}
        rows += [{**one, "measure": f"another camera, {one['measure']}"} for one in table(other)]
        found |= other
    report(rows, args, room_rows(found), timed=False)


def rooms_of(root: Path) -> Rooms:
    """A sample of the pixels of every frame, by room."""
    dataset, rooms = open_dataset(root), Rooms()
    for number, frame in enumerate(track(dataset.frames, len(dataset.frames), "reading", "frame")):
        assert frame.zoe is not None and frame.depth is not None
        truth_m = read_truth_m(frame.depth, dataset.depth_encoding)
        pseudo_m: Array = (read_zoe(frame.zoe) * ZOE_UNIT_M).astype(np.float32)
        if pseudo_m.shape != truth_m.shape:
            pseudo_m = cv2.resize(pseudo_m, truth_m.shape[::-1], interpolation=cv2.INTER_LINEAR)
        y, x = np.nonzero((truth_m > NEAREST_M) & (truth_m < FARTHEST_M) & (pseudo_m > 0))
        if not len(x):
            continue
        chosen = np.random.default_rng(number).choice(len(x), min(PIXELS, len(x)), replace=False)
        y, x = y[chosen], x[chosen]
        height, width = truth_m.shape
        pseudo, true = pseudo_m[y, x].astype(float), truth_m[y, x].astype(float)
        rows = features(pseudo, (x + 0.5) / width, (y + 0.5) / height)
        rooms.setdefault(frame.scene, []).append(Pixels(rows, pseudo, true))
    return rooms


def building(name: str) -> str:
    """What is left out with a room."""
    return next((one for one in BUILDINGS if name.startswith(one)), name)


def prior_of(rooms: Rooms, origin: str = "") -> RoomPrior:
    """The prior that a few pixels of some frames of each room give."""
    return fit_prior([
        [TrueDepth(one.features[:PRIOR_PIXELS], one.true_m[:PRIOR_PIXELS])
         for one in spread_over(frames, PRIOR_FRAMES)] for frames in rooms.values()
    ], origin)  # fmt: skip


def spread_over(frames: Sequence[Pixels], most: int) -> list[Pixels]:
    """At most so many of the frames, evenly."""
    return [frames[i] for i in np.linspace(0, len(frames) - 1, min(most, len(frames))).astype(int)]


def single_factor(rooms: Rooms) -> float:
    """The factor of least AbsRel over rooms, each of the same weight."""
    chosen = np.random.default_rng(0)
    true, pseudo = np.concatenate([
        one[:, chosen.integers(0, one.shape[1], ROOM_PIXELS)]
        for one in map(pixels_of, rooms.values())
    ], 1)  # fmt: skip
    return best_factor(torch.from_numpy(true), torch.from_numpy(pseudo))


def pixels_of(frames: Sequence[Pixels]) -> Array:
    """True and pseudo depth of all frames, [2, N]."""
    return np.concatenate([np.stack([one.true_m, one.pseudo_m]) for one in frames], 1)


def own_factor(frames: Sequence[Pixels]) -> float:
    """The factor of least AbsRel over frames."""
    true, pseudo = pixels_of(frames)
    return best_factor(torch.from_numpy(true), torch.from_numpy(pseudo))


def left_out(rooms: Rooms, draws: int) -> Iterator[tuple[str, dict[str, float]]]:
    """The figures of every room that is large enough, with the prior of the others."""
    tested = [name for name, frames in rooms.items() if len(frames) >= LEAST_FRAMES]
    known: dict[str, tuple[RoomPrior, float]] = {}
    for name in track(tested, len(tested), "leave rooms out", "room"):
        others = {one: frames for one, frames in rooms.items() if building(one) != building(name)}
        if building(name) not in known:
            known[building(name)] = prior_of(others), single_factor(others)
        yield name, of_room(rooms[name], *known[building(name)], draws)


def of_room(
    frames: Sequence[Pixels], prior: RoomPrior, factor: float, draws: int
) -> dict[str, float]:
    """AbsRel of every side, and the coverage of the band, over draws of what is measured."""
    room = own_factor(frames)
    found = {
        "pseudo depth": mean_error(frames, lambda one: one.pseudo_m),
        "single factor": mean_error(frames, lambda one: factor * one.pseudo_m),
        "best factor of each room": mean_error(frames, lambda one: room * one.pseudo_m),
        "best factor of each frame": mean_error(
            frames, lambda one: own_factor([one]) * one.pseudo_m
        ),
    }
    for name, case in CASES.items():
        sides = [drawn(frames, prior, factor, case, seed) for seed in range(draws)]
        for key in sides[0]:
            found[f"{name}: {key}"] = float(np.mean([one[key] for one in sides]))
    return found


def drawn(
    frames: Sequence[Pixels], prior: RoomPrior, factor: float, case: Case, seed: int
) -> dict[str, float]:
    """The figures of one draw, over the frames where nothing was measured."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(frames), case.frames, replace=False)
    used = [
        Measurement(str(number), frames[number].features[i],
                    frames[number].true_m[i] * max(0.1, 1 + NOISE * rng.standard_normal()))
        for number in chosen
        for i in rng.choice(len(frames[number].true_m), case.points, replace=False)
    ]  # fmt: skip
    for i in rng.choice(len(used), case.wrong, replace=False):
        used[i] = Measurement(used[i].frame, used[i].features, rng.uniform(*WRONG_M))
    room = calibrate(prior, used)
    rest = [one for number, one in enumerate(frames) if number not in chosen]
    return {
        "AbsRel": mean_error(rest, lambda one: room.depth_m(one.features)),
        "pseudo depth": mean_error(rest, lambda one: one.pseudo_m),
        "single factor": mean_error(rest, lambda one: factor * one.pseudo_m),
        "coverage": float(np.mean([coverage(room, one) for one in rest])),
    }


def mean_error(frames: Sequence[Pixels], depth_m: Callable[[Pixels], Array]) -> float:
    """AbsRel of a side, the mean over frames."""
    return float(np.mean([
        np.mean(np.abs(depth_m(one).clip(NEAREST_M, FARTHEST_M) - one.true_m) / one.true_m)
        for one in frames
    ]))  # fmt: skip


def coverage(room: RoomCalibration, one: Pixels) -> float:
    """The share of a frame's pixels in the band."""
    apart = np.abs(np.log(one.true_m / room.depth_m(one.features)))
    return float(np.mean(apart <= room.spread(one.features)))


def table(found: dict[str, dict[str, float]]) -> list[Row]:
    """The figures over rooms."""
    sides = {name: np.array([one[name] for one in found.values()]) for name in next(iter(
        found.values()
    ))}  # fmt: skip
    factor = sides["single factor"]
    rows = [row("rooms", len(factor), "rooms")]
    rows += [row(f"{name} / single factor", sides[name].mean() / factor.mean(), "")
             for name in REFERENCES]  # fmt: skip
    for name in CASES:
        rows += case_rows(name, sides)
    base, wrong = (
        sides[f"3 frames of 5 points{end}: AbsRel"].mean() for end in ("", ", one wrong")
    )
    return [*rows, row("cost of one wrong in fifteen", wrong / base, "times", at_most=1.1)]


def case_rows(name: str, sides: dict[str, Array]) -> list[Row]:
    """The figures of one case, with its aims."""
    error, factor, pseudo, covered = (
        sides[f"{name}: {key}"] for key in ("AbsRel", "single factor", "pseudo depth", "coverage")
    )
    ratio, geometric, better, worst = AIMS.get(name, (None,) * 4)
    inside = np.mean((covered >= 0.85) & (covered <= 0.95))
    return [
        row(f"{name}: / single factor", error.mean() / factor.mean(), "", at_most=ratio),
        row(f"{name}: geometric mean", float(np.exp(np.log(error / factor).mean())), "",
            at_most=geometric),
        row(f"{name}: rooms better than it", float(np.mean(error < factor)), "share",
            at_least=better),
        row(f"{name}: worst / pseudo depth", float(np.max(error / pseudo)), "", at_most=worst),
        row(f"{name}: coverage", float(np.mean(covered)), "share"),
        row(f"{name}: rooms with coverage .85 to .95", float(inside), "share",
            at_least=2 / 3 if name in AIMS else None),
    ]  # fmt: skip


def room_rows(found: dict[str, dict[str, float]]) -> list[Row]:
    """Every figure of every room."""
    return [row(f"{room}: {name}", value, "") for room, one in found.items()
            for name, value in one.items()]  # fmt: skip


def write_prior(path: Path, rooms: Rooms, origin: str) -> None:
    """Write the prior of all rooms."""
    prior = prior_of(rooms, origin)
    write_json(path, {
        "origin": origin, "mean": prior.mean.tolist(), "covariance": prior.covariance.tolist(),
        "pixel_variance": prior.pixel_variance, "frame_variance": prior.frame_variance,
    })  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(run_command(main))
