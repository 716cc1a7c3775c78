"""Does a refiner help in rooms that it has never seen? Leave-rooms-out cross-validation.

Real frames of many rooms (`--data`) are divided into folds by a file of scene names (`--folds`;
one building is in one fold). Each fold is tested with networks that were trained on the others,
with every room drawn equally often. Sides: the pseudo depth; the best single factor of the
training rooms; a scale and a shift for each picture by ridge regression on its statistics; the
first implementation's network (not with --quick); the refiner of `--config`, also with the pseudo
depth of another room; and, for reference, the best factor of each frame, which needs its truth.
AbsRel of a room is the mean over its frames; the macro mean is over rooms. Intervals are of the
mean over rooms (Student's t), so they hold for other rooms of the same kind.
"""

import json
import statistics
import tempfile
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import torch
from common.baselines import DirectTrainer, ScaleAndShift, in_order, train_all_epochs
from common.report import Row, options, report, row
from torch import Tensor, nn

from zoerefine.analysis.seed_statistics import half_width
from zoerefine.config import Config, load_config
from zoerefine.data.augment import Augmentation
from zoerefine.data.cache import Cache
from zoerefine.data.pack import build_cache
from zoerefine.data.prefetch import Prefetcher
from zoerefine.data.readers import open_dataset
from zoerefine.data.sampler import OrderOptions
from zoerefine.data.split import Split
from zoerefine.errors import UserError, run_command
from zoerefine.metrics import valid_pixels
from zoerefine.progress import say, track
from zoerefine.training.evaluate import evaluate
from zoerefine.training.global_scale import fit_log_scale
from zoerefine.training.trainer import Trainer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SIDES = ("pseudo depth", "single factor", "scale and shift", "first implementation", "refined",
         "refined, another's pseudo depth", "best factor of each frame")  # fmt: skip
ByScene = dict[str, dict[str, float]]  # AbsRel of each side in each room


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="real frames of many scenes")
    parser.add_argument("--folds", type=Path, default=HERE / "rooms_folds.json")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "rooms.yaml")
    parser.add_argument("--seeds", type=int, default=3, help="networks of each fold (3)")
    parser.add_argument(
        "--refiner-only", action="store_true", help="leave out the first implementation's network"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rooms-") as folder:
        cfg = load_config(args.config, {"DATA.ROOT": str(args.data), "CACHE.ROOT": folder})
        dataset = open_dataset(args.data)
        cache = build_cache(dataset, cfg.CACHE.HEIGHT, cfg.CACHE.WIDTH, Path(folder))
        folds = read_folds(args.folds, cache.scenes)
        seeds = 1 if args.quick else args.seeds
        jobs = [
            (fold, seed) for seed in range(seeds) for fold in folds[: 2 if args.quick else None]
        ]
        found: list[ByScene] = []
        for test, seed in track(jobs, len(jobs), "leave rooms out", "fold"):
            found.append(measure(cfg, cache, test, seed, args.quick, args.refiner_only))
    report(rows_of(found), args.json)


def read_folds(path: Path, scenes: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The scenes of each fold: its own names first, then patterns.

    Raises `UserError` where a scene is in no fold, or in two.
    """
    listed = json.loads(path.read_text())["folds"]
    folds: list[list[str]] = [[] for _ in listed]
    for scene in scenes:
        named = [n for n, names in enumerate(listed) if scene in names]
        places = named or [
            n for n, names in enumerate(listed) if any(fnmatch(scene, name) for name in names)
        ]
        if len(places) != 1:
            raise UserError(f"{path}: scene {scene} is in {len(places)} folds, not in one")
        folds[places[0]].append(scene)
    return [tuple(fold) for fold in folds]


def measure(
    cfg: Config, cache: Cache, test: tuple[str, ...], seed: int, quick: bool, refiner_only: bool
) -> ByScene:
    """AbsRel of every side in the rooms of a fold."""
    others = tuple(scene for scene in cache.scenes if scene not in test)
    split = Split(others, (), test)
    trainer = train(Trainer, cfg, cache, split, seed, quick)
    trainer.log_scale = fit_log_scale(room_batches(trainer))
    found = trainer.evaluate(test)
    sides: dict[str, dict[str, float]] = {"pseudo depth": {}, "single factor": {}, "refined": {}}
    for side, which in zip(sides, ("pseudo", "global_scale", "refined"), strict=True):
        sides[side] = {s: v[which]["abs_rel"] for s, v in found["scenes"].items() if v[which]}
    ridge = ScaleAndShift(room_batches(trainer), cache.frames["clip"])
    sides["scale and shift"] = by_scene(ridge, trainer, test)
    sides["refined, another's pseudo depth"] = by_scene(
        OtherPseudoDepth(trainer.weights.eval(), other_pseudo(trainer)), trainer, test
    )
    sides["best factor of each frame"] = frame_oracle(trainer, test)
    if not (quick or refiner_only):
        first = train(DirectTrainer, cfg, cache, split, seed, quick)
        sides["first implementation"] = by_scene(first.weights, trainer, test)
    mean = {side: statistics.mean(values.values()) for side, values in sides.items()}
    say(f"seed {seed}: " + ", ".join(f"{side} {value:.3f}" for side, value in mean.items()))
    return {s: {side: v[s] for side, v in sides.items() if s in v} for s in sides["refined"]}


def train(
    kind: type[Trainer], cfg: Config, cache: Cache, split: Split, seed: int, quick: bool
) -> Trainer:
    """A network trained on the rooms of a split as the config says, each room equally often."""
    tree = {"SEED": seed, "LOADER.ORDER": "weighted"}
    if kind is DirectTrainer:
        tree |= {"LOSS.TERMS": [{"name": "mse", "weight": 1.0}], "TRAIN.LR": 1e-3}
    if quick:
        tree["TRAIN.EPOCHS"] = 2
    trainer = kind(load_config(cfg, tree), cache, split)
    options = cfg.AUGMENT
    change = Augmentation(options.FLIP, options.CROP, options.COLOR, options.SCALE)
    train_all_epochs(trainer, change)
    return trainer


def room_batches(trainer: Trainer) -> Prefetcher:
    """As many frames as there are, each training room equally often."""
    indices = trainer.cache.indices(trainer.split.train)
    return trainer.prefetch(trainer.loader_of(indices, 0, OrderOptions("weighted")))


def by_scene(network: nn.Module, trainer: Trainer, test: tuple[str, ...]) -> dict[str, float]:
    """AbsRel of a network's depth in each test room."""
    found = evaluate(network, in_order(trainer, test), 0.0, trainer.cache, torch.float32)
    return {s: v["refined"]["abs_rel"] for s, v in found["scenes"].items() if v["refined"]}


class OtherPseudoDepth(nn.Module):
    """A refiner that is given the pseudo depth of another room."""

    def __init__(self, refiner: nn.Module, zoe_m: Tensor) -> None:
        super().__init__()
        self.refiner, self.zoe_m = refiner, zoe_m

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor:
        refined: Tensor = self.refiner(rgb01, self.zoe_m[: len(rgb01)])
        return refined


def other_pseudo(trainer: Trainer) -> Tensor:
    """A batch of pseudo depth of training rooms."""
    return next(iter(room_batches(trainer))).zoe_m.clone()


def frame_oracle(trainer: Trainer, test: tuple[str, ...]) -> dict[str, float]:
    """AbsRel of each test room when every frame has its own best factor."""
    found: dict[str, list[float]] = {}
    cache = trainer.cache
    for batch in in_order(trainer, test):
        mask = valid_pixels(batch.depth_m, batch.zoe_m)
        for k, index in enumerate(batch.index.tolist()):
            truth, zoe = batch.depth_m[k][mask[k]], batch.zoe_m[k][mask[k]]
            if len(truth):
                scene = cache.clips[cache.frames["clip"][index]].scene
                found.setdefault(scene, []).append(least_abs_rel(truth, zoe))
    return {scene: statistics.mean(values) for scene, values in found.items()}


def least_abs_rel(truth: Tensor, zoe: Tensor) -> float:
    """AbsRel of a frame at its best factor: the median of truth / zoe with weights zoe / truth."""
    ratio, order = (truth / zoe).double().sort()
    weight = (zoe / truth).double()[order].cumsum(0)
    factor = ratio[torch.searchsorted(weight, weight[-1] / 2)]
    return ((factor * zoe - truth).abs() / truth).mean().item()


def rows_of(found: list[ByScene]) -> list[Row]:
    """Macro means over rooms with intervals, and how the refiner compares with the factor."""
    rooms: ByScene = {}
    for scene in sorted({scene for fold in found for scene in fold}):
        folds = [fold[scene] for fold in found if scene in fold]
        rooms[scene] = {s: statistics.mean(f[s] for f in folds) for s in SIDES if s in folds[0]}
    rows = []
    for side in SIDES:
        values = [room[side] for room in rooms.values() if side in room]
        if values:
            rows.append(row(f"macro mean: {side}", statistics.mean(values), "AbsRel"))
            rows.append(row(f"macro mean: {side}, +- (95%)", half_width(values), "AbsRel"))
    columns = {
        side: np.array([room.get(side, np.nan) for room in rooms.values()]) for side in SIDES
    }
    refined, factor = columns["refined"], columns["single factor"]
    pseudo, other = columns["pseudo depth"], columns["refined, another's pseudo depth"]
    rows += [
        row("rooms", len(rooms), "rooms"),
        row("refined, of the single factor", refined.mean() / factor.mean(), "x", at_most=0.75),
        row("rooms where refined beats the single factor", float((refined < factor).mean()),
            "share", at_least=0.8),
        row("worst room, refined of the pseudo depth", float((refined / pseudo).max()), "x",
            at_most=1.1),
        row("another's pseudo depth, of the own", other.mean() / refined.mean(), "x",
            at_least=1.5),
        row("best factor of each frame, of the single factor",
            columns["best factor of each frame"].mean() / factor.mean(), "x"),
    ]  # fmt: skip
    rows += [row(f"{scene}: refined of the single factor", room["refined"] / room["single factor"],
                 "x") for scene, room in rooms.items()]  # fmt: skip
    return rows


if __name__ == "__main__":
    raise SystemExit(run_command(main))
