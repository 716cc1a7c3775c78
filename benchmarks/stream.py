"""How much steadier is depth with `infer --stream`, and what does it cost?

Frames of recordings (`--data`, and `--unseen` of another camera; without them, of a small synthetic
world, whose figures mean nothing). A recording counts as a stream if nine tenths of its
neighbouring frames move by at most 2% of the width; the others are reported beside them, without an
aim. Sides: the pseudo depth, and a refiner that `zoerefine train` would make with `--config` of the
other scenes of `--data`, each frame by frame and as a stream. Flicker and AbsRel are those of
benchmarks/rooms.py, means over recordings. For reference, the flicker of a depth that never
changes: what a perfectly steady depth keeps where the truth has noise and people walk. Metric
points (50 a frame, 3% noise) are spread before the stream, or after it.

A steady depth could smear what moves: AbsRel on the moving objects of a synthetic world, which
says nothing about HabitatDyn's, shows how much.

The settings of the stream were chosen by the figures of the pseudo depth in `--data` and by these
objects; `--unseen` is a clean test of them and of the refiner.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from common.report import Row, options, report, row
from common.rooms.figures import ABS_REL, RoomMeans
from common.rooms.folds import read_folds
from common.rooms.jobs import Data
from common.rooms.training import train_refiner
from common.timing import in_turns

from zoerefine.base.config import Config, load_config
from zoerefine.base.depth_limits import FARTHEST_M
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.cli import run_command
from zoerefine.depth.data.cache.decode import read_objects, read_zoe
from zoerefine.depth.data.dataset import Clip, Dataset, Frame
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.split import Split, split_scenes
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.exporting.shipped_module import ShippedModule, core_of
from zoerefine.depth.infer.stream import flow_to_last, remember, step
from zoerefine.depth.metrics import log_error, picture_metrics, valid_pixels
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.points.for_engines import corrected, points_alone_u16
from zoerefine.depth.points.simulate import PointSimulation, simulated, truth_and_picture

Array = np.ndarray
Pictures = tuple[Array, Array, Array]  # a frame's rgb, pseudo depth in its units, true metres
Figures = dict[str, dict[str, tuple[float, float]]]
Side = Callable[[Array, Array], Array]  # rgb and pseudo depth of a frame to depth, uint16

HERE = Path(__file__).resolve().parent
SYNTHETIC = "synthetic world"
PSEUDO, REFINED = "pseudo depth", "refined"
CONSTANT = "a depth that never changes"
POINTS = PointSimulation(count=50)
LEAST_FRAMES = 5
MOTION, SHARE_OF_PAIRS = 0.02, 0.9
QUICK_FRAMES = 8
HALF, COST = 0.5, 1.02
FRAME_SIZE, REAL_TIME_MS = (480, 640), 33.3


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, help="real frames of many scenes")
    parser.add_argument("--unseen", type=Path, help="consecutive frames of another camera")
    parser.add_argument("--config", type=Path, default=HERE.parent / "configs" / "rooms.yaml")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stream-") as folder:
        root = args.data or make_world(Path(folder) / "world")
        quick = {"TRAIN.EPOCHS": 1} if args.quick or not args.data else {}
        cfg = load_config(args.config, {
            **quick, "DATA.ROOT": str(root), "CACHE.ROOT": f"{folder}/caches", "TRAIN.PICTURES": 0,
        })  # fmt: skip
        data = Data.at(root, cfg)
        held_out = held_out_scenes(args.data, data)
        sides = sides_of(trained(cfg, data, held_out, Path(folder) / "run"), cfg)
        limit = QUICK_FRAMES if args.quick else None
        label = "rooms" if args.data else SYNTHETIC
        rows, details = measured(label, data.dataset, held_out, sides, limit)
        if args.unseen:
            unseen = open_dataset(args.unseen)
            scenes = {frame.scene for frame in unseen.frames}
            more = measured("another camera", unseen, scenes, sides, limit)
            rows, details = rows + more[0], details + more[1]
        rows += object_rows(Path(folder) / "objects", QUICK_FRAMES if args.quick else 24)
    report(rows + latency_rows(2.0 if args.quick else 10.0), args, details)


def make_world(root: Path) -> Path:
    """A small synthetic world."""
    say("no --data: a small synthetic world, to show that the program works")
    synthesize(root, 5, 1, 8, 0, 120, 160)
    return root


def held_out_scenes(real: Path | None, data: Data) -> set[str]:
    """The scenes that the refiner is not trained on: the fold with the fixed cameras."""
    if not real:
        return {data.cache.scenes[0]}
    return set(read_folds(HERE / "rooms_folds.json", data.cache.scenes)[0])


def trained(cfg: Config, data: Data, held_out: set[str], run: Path) -> RefinerNetwork:
    """A refiner as `zoerefine train` makes it on the other scenes."""
    others = tuple(scene for scene in data.cache.scenes if scene not in held_out)
    split = split_scenes(others, cfg.DATA.VAL_FRACTION, 0.0, cfg.SEED)
    refiner = train_refiner(cfg, data.cache, Split(split.train, split.val, ()), run)
    say(f"strength of the correction: {float(refiner.get_buffer('strength')):.2f}")
    return refiner.eval()


def sides_of(refiner: RefinerNetwork, cfg: Config) -> dict[str, Side]:
    """Every depth that is compared, frame by frame."""
    return {
        PSEUDO: lambda rgb, zoe: zoe,
        REFINED: depth_by(refiner, cfg.CACHE.HEIGHT, cfg.CACHE.WIDTH),
        CONSTANT: lambda rgb, zoe: np.where(zoe > 0, round(2 / ZOE_UNIT_M), 0).astype(np.uint16),
    }


def depth_by(refiner: RefinerNetwork, height: int, width: int) -> Side:
    """Depth as an engine of this refiner returns it."""
    refiner.fix_size(height, width)
    module = ShippedModule(core_of(refiner), height, width, refiner.has_confidence).eval()

    def side(rgb: Array, zoe: Array) -> Array:
        with torch.inference_mode():
            outputs: Any = module(torch.from_numpy(rgb)[None], torch.from_numpy(zoe)[None])
        depth: Array = outputs[0][0].numpy()
        return depth

    return side


def measured(
    label: str, dataset: Dataset, scenes: set[str], sides: Mapping[str, Side], limit: int | None
) -> tuple[list[Row], list[Row]]:
    """Rows of a data set: means over its streams, and those of each recording."""
    streams, others = Means(), Means()
    for clip, frames in recordings(dataset, scenes):
        pictures = [read(dataset, frame) for frame in frames[:limit]]
        motion = usual_motion(pictures)
        say(f"{label}: {clip}, {len(pictures)} frames, motion {100 * motion:.1f}% of the width")
        add_recording(streams if motion <= MOTION else others, clip, pictures, sides)
    aims = label != SYNTHETIC
    rows = mean_rows(f"{label}, streams", streams.compute(), sides, aims)
    rows += mean_rows(f"{label}, more motion", others.compute(), sides, aims=False)
    details = [
        row(f"{label}: {clip}: {side}: {measure}", value, unit)
        for found in (streams.compute(), others.compute())
        for side, clips in found.items()
        for clip, (flicker, abs_rel) in clips.items()
        for measure, value, unit in (
            ("flicker", flicker, "log depth"), ("AbsRel", abs_rel, "AbsRel"),
        )
    ]  # fmt: skip
    return rows, details


class Means:
    """Flicker and AbsRel of every side and recording: means over frames."""

    def __init__(self) -> None:
        self.flicker: dict[str, RoomMeans] = {}  # for its memory of the last frame
        self.values: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def add(self, side: str, clip: str, depth: Array, zoe: Array, truth_m: Array) -> None:
        """Add a frame's depth and pseudo depth, in units of files."""
        depth_m, zoe_m, true_m = (
            torch.from_numpy(np.float32(one))[None, None]
            for one in (depth * ZOE_UNIT_M, zoe * ZOE_UNIT_M, truth_m)
        )
        mask = valid_pixels(true_m, zoe_m)
        error, means = log_error(depth_m, true_m, mask), self.flicker.setdefault(side, RoomMeans())
        flicker = means.flicker(error, true_m, mask, [Clip(clip, clip)])
        abs_rel = picture_metrics(depth_m, true_m, mask)[0, ABS_REL]
        self.values.setdefault((side, clip), []).append((float(flicker[0]), float(abs_rel)))

    def compute(self) -> Figures:
        """Flicker and AbsRel by side and recording. Frames of another view have no flicker."""
        found: Figures = {}
        for (side, clip), values in self.values.items():
            flicker, abs_rel = np.nanmean(values, axis=0)
            if not np.isnan(flicker):
                found.setdefault(side, {})[clip] = float(flicker), float(abs_rel)
        return found


def recordings(dataset: Dataset, scenes: set[str]) -> Iterator[tuple[str, list[Frame]]]:
    """The clips of some scenes that have enough frames."""
    wanted = [f for f in dataset.frames if f.scene in scenes and f.depth and f.zoe]
    clips = [(clip, list(frames)) for clip, frames in groupby(wanted, lambda frame: frame.clip)]
    long = [(clip, frames) for clip, frames in clips if len(frames) >= LEAST_FRAMES]
    yield from track(long, len(long), "measuring", "recording")


def read(dataset: Dataset, frame: Frame) -> Pictures:
    """A frame's picture, pseudo depth and true metres."""
    assert frame.zoe is not None
    truth_m, rgb = truth_and_picture(dataset, frame)
    return rgb, read_zoe(frame.zoe), truth_m.astype(np.float32)


def usual_motion(pictures: list[Pictures]) -> float:
    """The motion that nine tenths of the neighbouring frames keep below, in widths."""
    greys = [remember(rgb, zoe).grey for rgb, zoe, _ in pictures]
    flows = [flow_to_last(now, last) for last, now in pairwise(greys)]
    medians = [np.median(np.hypot(flow[..., 0], flow[..., 1])) / flow.shape[1] for flow in flows]
    return float(np.quantile(medians, SHARE_OF_PAIRS))


def add_recording(
    means: Means, clip: str, pictures: list[Pictures], sides: Mapping[str, Side]
) -> None:
    """Add the figures of a recording to every side, frame by frame and as a stream."""
    memories: dict[str, Any] = {}

    def steady(name: str, rgb: Array, depth: Array) -> Array:
        found, memories[name] = step(memories.get(name), rgb, depth)
        return found

    for number, (rgb, zoe, truth_m) in enumerate(pictures):
        found = {name: side(rgb, zoe) for name, side in sides.items()}
        found |= {f"{name}, stream": steady(name, rgb, found[name]) for name in with_stream(sides)}
        points = simulated(POINTS, truth_m, rgb, f"{clip}/{number}")
        spread = points_alone_u16(zoe, points)
        found["points"] = spread
        found["points, then stream"] = steady("points", rgb, spread)
        found["stream, then points"] = corrected(found[f"{PSEUDO}, stream"], points)
        for name, depth in found.items():
            means.add(name, clip, depth, zoe, truth_m)


def with_stream(sides: Mapping[str, Side]) -> list[str]:
    """The sides that are measured as a stream, too."""
    return [name for name in sides if name != CONSTANT]


def mean_rows(label: str, figures: Figures, sides: Mapping[str, Side], aims: bool) -> list[Row]:
    """Means over recordings, and each stream beside its frames; no row without recordings."""
    if not figures:
        return []
    means = {side: np.mean(list(found.values()), axis=0) for side, found in figures.items()}
    rows = [row(f"{label}: recordings", len(figures[PSEUDO]), "")]
    for side, (flicker, abs_rel) in means.items():
        rows.append(row(f"{label}: {side}: flicker", flicker, "log depth"))
        if side != CONSTANT:
            rows.append(row(f"{label}: {side}: AbsRel", abs_rel, "AbsRel"))
    for side in with_stream(sides):
        flicker, abs_rel = means[f"{side}, stream"] / means[side]
        rows += [
            row(f"{label}: {side}: flicker, stream / frames", flicker, "",
                at_most=HALF if aims else None),
            row(f"{label}: {side}: AbsRel, stream / frames", abs_rel, "",
                at_most=COST if aims else None),
        ]  # fmt: skip
    return rows


def object_rows(root: Path, frames: int) -> list[Row]:
    """AbsRel of the pseudo depth on moving objects and elsewhere, as a stream beside its frames."""
    synthesize(root, 4, 1, frames, 0, 240, 320)
    dataset, memory, clip = open_dataset(root), None, ""
    errors: dict[str, list[tuple[float, float]]] = {"moving objects": [], "elsewhere": []}
    for frame in dataset.frames:
        memory, clip = memory if frame.clip == clip else None, frame.clip
        rgb, zoe, truth_m = read(dataset, frame)
        steady, memory = step(memory, rgb, zoe)
        assert frame.objects is not None
        moving = read_objects(frame.objects) > 0
        valid = (truth_m > 0) & (truth_m < FARTHEST_M) & (zoe > 0)
        for where, mask in (("moving objects", valid & moving), ("elsewhere", valid & ~moving)):
            if mask.any():
                found = [np.mean(np.abs(depth[mask] * ZOE_UNIT_M / truth_m[mask] - 1))
                         for depth in (zoe, steady)]  # fmt: skip
                errors[where].append((float(found[0]), float(found[1])))
    rows = []
    for where, values in errors.items():
        alone, stream = np.mean(values, axis=0)
        rows.append(row(f"{SYNTHETIC}: AbsRel, {where}, stream / frames", stream / alone, ""))
    return rows


def latency_rows(seconds: float) -> list[Row]:
    """Milliseconds of a step, in one thread."""
    cv2.setNumThreads(1)
    rng = np.random.default_rng(0)
    height, width = FRAME_SIZE
    coarse = rng.integers(0, 256, (30, 40, 3), np.uint8)
    rgb = cv2.resize(coarse, (width + 2, height), interpolation=cv2.INTER_CUBIC)
    first, second = (np.ascontiguousarray(rgb[:, at : at + width]) for at in (0, 2))
    depth = rng.integers(500, 800, FRAME_SIZE).astype(np.uint16)
    memory = remember(first, depth)
    times = in_turns({"a step": lambda: step(memory, second, depth)}, seconds)["a step"]
    return [row("a step, 480x640", float(np.median(times)), "ms", at_most=REAL_TIME_MS)]


if __name__ == "__main__":
    raise SystemExit(run_command(main))
