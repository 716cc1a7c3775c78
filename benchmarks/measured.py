"""How far do a few distances go that were measured once in a room, without any training?

Rooms of real frames (`--data`; without it, of a small synthetic world, whose figures mean nothing)
are left out in turn, those of one building together. The prior of `zoerefine.depth.points.room` is
fitted to the other rooms. Measurements are simulated from the true depth of a few frames: random
pixels with 3% noise, also with one of fifteen wrong. The rest of the room's frames is corrected.
`--unseen` adds a room of another camera, with the prior of all rooms of `--data`.

`--refiner` adds refiners below the calibration, as `zoerefine train` makes them: one that never saw
the room, the same at full strength, and one that knows the room. For each of them: the calibration
always on top of it, and as the product does it, where the measurements decide whether the refiner
is used or left away.

A figure is AbsRel of a sample of each frame's pixels, the mean over frames and draws. The *single
factor* is the best one of the other rooms. For reference: the best factor of each room and of each
frame, which need the truth. Only rooms with 20 frames or more are tested.

The form of the calibration and the width of its band were chosen by these figures, in rooms that
--data may name, so they are optimistic; of the kitchen that --unseen may name, the width is clean.

`--write-prior FILE` writes the prior of all rooms of `--data`, as the package ships it.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
from common.report import Row, options, report, row
from common.room_prior import TrueDepth, fit_prior
from common.rooms.folds import folds_in_turn, read_folds
from common.rooms.room_refiners import FULL, KNOWS, NEW, Refiners, refiners_of_rooms
from common.rooms.sides import best_factor

from zoerefine.base.depth_limits import FARTHEST_M, NEAREST_M
from zoerefine.base.files.atomic import write_json
from zoerefine.base.files.images import read_rgb
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.cli import run_command
from zoerefine.depth.data.cache.decode import read_truth_m, read_zoe
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.points.measured import RoomFound
from zoerefine.depth.points.refiner_choice import RefinerChoice
from zoerefine.depth.points.room import Measurement, RoomCalibration, calibrate, unseen_errors
from zoerefine.depth.points.room_prior import RoomPrior, features

Array = np.ndarray
BUILDINGS = ("ist_",)  # beginnings of the names of rooms that are left out together
FOLDS = Path(__file__).with_name("rooms_folds.json")
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
    "10 frames of 20 points": Case(10, 20),  # about what this form of calibration can reach
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
    """A sample of a frame's pixels: features [N, 6], pseudo and true depth [N] in metres.

    `refined` has the features of each refiner's depth.
    """

    features: Array
    pseudo_m: Array
    true_m: Array
    refined: dict[str, Array] = field(default_factory=dict)


Rooms = dict[str, list[Pixels]]


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, help="real frames of many scenes")
    parser.add_argument("--unseen", type=Path, help="frames of another camera, one room")
    parser.add_argument("--refiner", action="store_true", help="also with refiners, see above")
    parser.add_argument("--write-prior", type=Path, metavar="FILE", help="write the prior there")
    parser.add_argument("--origin", default="", help="of the rooms, for --write-prior")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="measured-") as folder:
        root = args.data or Path(folder) / "world"
        if not args.data:
            say("no --data: a small synthetic world, to show that the program works")
            synthesize(root, 6, 1, 24, 0, 120, 160)
        refiners: dict[str, Refiners] = {}
        others: Refiners = {}
        if args.refiner:
            scenes = open_dataset(root).scenes
            folds = read_folds(FOLDS, scenes) if args.data else folds_in_turn(scenes, 3)
            refiners, others = refiners_of_rooms(root, Path(folder), folds, args.quick)
        rooms = rooms_of(root, refiners)
        unseen = rooms_of(args.unseen, {}, others) if args.unseen else {}
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


def rooms_of(root: Path, refiners: Mapping[str, Refiners], others: Refiners | None = None) -> Rooms:
    """A sample of the pixels of every frame, by room.

    Args:
        refiners: of each room, and `others` of the rooms that it does not have.
    """
    dataset, rooms = open_dataset(root), Rooms()
    for number, frame in enumerate(track(dataset.frames, len(dataset.frames), "reading", "frame")):
        assert frame.zoe is not None and frame.depth is not None
        truth_m = read_truth_m(frame.depth, dataset.depth_encoding)
        zoe = read_zoe(frame.zoe)
        pseudo_m: Array = (zoe * ZOE_UNIT_M).astype(np.float32)
        if pseudo_m.shape != truth_m.shape:
            pseudo_m = cv2.resize(pseudo_m, truth_m.shape[::-1], interpolation=cv2.INTER_LINEAR)
        y, x = np.nonzero((truth_m > NEAREST_M) & (truth_m < FARTHEST_M) & (pseudo_m > 0))
        if not len(x):
            continue
        chosen = np.random.default_rng(number).choice(len(x), min(PIXELS, len(x)), replace=False)
        y, x = y[chosen], x[chosen]
        height, width = truth_m.shape
        pseudo, true = pseudo_m[y, x].astype(float), truth_m[y, x].astype(float)
        place = (x + 0.5) / width, (y + 0.5) / height
        refined = {
            name: features(refine(read_rgb(frame.rgb), zoe)[y, x] * ZOE_UNIT_M, *place)
            for name, refine in refiners.get(frame.scene, others or {}).items()
        }
        pixels = Pixels(features(pseudo, *place), pseudo, true, refined)
        rooms.setdefault(frame.scene, []).append(pixels)
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
    taken = [
        Taken(number, i, frames[number].true_m[i] * max(0.1, 1 + NOISE * rng.standard_normal()))
        for number in chosen
        for i in rng.choice(len(frames[number].true_m), case.points, replace=False)
    ]
    for i in rng.choice(len(taken), case.wrong, replace=False):
        taken[i] = replace(taken[i], metres=rng.uniform(*WRONG_M))
    without = found_by(frames, taken, prior)
    room = without.calibration
    rest = [one for number, one in enumerate(frames) if number not in chosen]
    found = {
        "AbsRel": mean_error(rest, lambda one: room.depth_m(one.features)),
        "pseudo depth": mean_error(rest, lambda one: one.pseudo_m),
        "single factor": mean_error(rest, lambda one: factor * one.pseudo_m),
        "coverage": float(np.mean([coverage(room, one) for one in rest])),
    }
    for name in frames[0].refined if taken else ():
        refined = found_by(frames, taken, prior, name)
        used = RefinerChoice.of(without, refined).used
        always = mean_error(rest, partial(refined_m, refined.calibration, name))
        found |= {f"{name}: used": float(used), f"{name}: always": always,
                  f"{name}: chosen": always if used else found["AbsRel"]}  # fmt: skip
    return found


@dataclass(frozen=True)
class Taken:
    """A measurement: the number of its frame, that of its pixel, and metres."""

    frame: int
    pixel: int
    metres: float


def found_by(
    frames: Sequence[Pixels], taken: Sequence[Taken], prior: RoomPrior, refiner: str = ""
) -> RoomFound:
    """The calibration by measurements, of pseudo depth or of a refiner's."""
    used = [
        Measurement(str(one.frame), rows_of(frames[one.frame], refiner)[one.pixel], one.metres)
        for one in taken
    ]
    room = calibrate(prior, used)
    return RoomFound(room, used, {}, unseen_errors(prior, used, room))


def rows_of(one: Pixels, refiner: str) -> Array:
    """The features of a frame's pixels, of pseudo depth or of a refiner's."""
    return one.refined[refiner] if refiner else one.features


def refined_m(room: RoomCalibration, refiner: str, one: Pixels) -> Array:
    """A refiner's depth, corrected."""
    return room.depth_m(one.refined[refiner])


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
        rows += case_rows(name, sides) + refiner_rows(name, sides)
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


def refiner_rows(case: str, sides: dict[str, Array]) -> list[Row]:
    """The refiners below the calibration of one case, over what it is without them."""
    rows, without = [], sides[f"{case}: AbsRel"]
    for name in (NEW, FULL, KNOWS):
        if f"{case}: {name}: used" not in sides:
            continue
        always, chosen, used = (
            sides[f"{case}: {name}: {key}"] for key in ("always", "chosen", "used")
        )
        rows += [
            row(f"{case}, {name} always / without", always.mean() / without.mean(), ""),
            row(f"{case}, {name} if it helps / without", chosen.mean() / without.mean(), "",
                at_most=1.0),
            row(f"{case}, {name} if it helps: worst room / without", np.max(chosen / without), ""),
            row(f"{case}, {name}: used", np.mean(used), "share"),
        ]  # fmt: skip
    return rows


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
