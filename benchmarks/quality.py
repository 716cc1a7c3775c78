"""Held-out quality of every refiner and of its baselines over seeds, and a table of them.

Held-out scenes of the synthetic world at 192x256, with the errors of training (family a) and with
another family (b); or the last scene of a real data set. Sides: the pseudo depth; the best single
factor of the training scenes; a scale and a shift for each picture, predicted from its statistics
by ridge regression on the training scenes; the first implementation's network (a UNet with
ResNet18's encoder that predicts depth, masked MSE); and each refiner. All see the same pictures
and train for about the same time: a network three times cheaper trains three times the epochs
(`--epochs` sets the same number of epochs for all). The averaged last weights are evaluated.
"""

import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from common.baselines import DirectTrainer, ScaleAndShift, in_order, train_all_epochs
from common.report import Row, options, report, row
from torch.utils.flop_counter import FlopCounterMode
from yacs.config import CfgNode

from zoerefine.base.config import defaults, merge
from zoerefine.base.files.atomic import write_text
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.loading.augment import Augmentation
from zoerefine.depth.data.split import Split
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.model import RefinerNetwork, build_refiner
from zoerefine.depth.training.evaluate import evaluate
from zoerefine.depth.training.trainer import Trainer
from zoerefine.lab.analysis.statistics.significance import half_width

MODELS = {"small": 16, "guided": 32, "unet": 64}  # and their bases
FIRST = "first implementation"
# Equal time on a CPU of two cores, where an epoch of each takes 28, 19, 10 and 28 seconds.
EPOCHS = {FIRST: 12, "small": 18, "guided": 36, "unet": 12}
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
SILOG = ", SILog"  # the error that remains when each picture's scale is corrected

Found = dict[tuple[str, str], list[float]]  # by side and test, a value a seed


def main() -> None:
    """Print the table, and write it where asked."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, help="real frames; the last scene is held out")
    parser.add_argument("--epochs", type=int, help="epochs of every network, instead of equal time")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the table of refiners")
    args = parser.parse_args()
    size = (64, 96) if args.quick else (192, 256)
    with tempfile.TemporaryDirectory(prefix="quality-") as folder:
        root = args.data or Path(folder) / "world"
        if not args.data:
            # Many scenes of few frames: what a picture's scale follows differs by scene, so it is
            # scenes, not frames, that training and test need many of.
            scenes, frames = ((8, 2), 12) if args.quick else ((80, 16), 5)
            shape = (120, 160) if args.quick else (480, 640)
            synthesize(root, scenes[0], 1, frames, 0, *shape, family_b_scenes=scenes[1])
        cache = build_cache(open_dataset(root), *size, Path(folder) / "caches")
        family_b = 0 if args.data else scenes[1]
        epochs = {name: few // 3 if args.quick else few for name, few in EPOCHS.items()}
        if args.epochs:
            epochs = dict.fromkeys(EPOCHS, args.epochs)
        rows = measure(cache, family_b, range(1 if args.quick else 3), epochs)
    report(rows, args, timed=False)
    if args.docs:
        write_docs(args.docs, rows)


def measure(cache: Cache, family_b: int, seeds: Sequence[int], epochs: dict[str, int]) -> list[Row]:
    """AbsRel and SILog on held-out scenes: means over seeds, half the width of 95% intervals."""
    names = cache.scenes
    kept = len(names) - family_b
    held = max(1, kept // 6)
    tests = {"family a": names[kept - held : kept], "family b": names[kept:]}
    if not family_b:
        tests = {"held out": names[-1:]}
        kept, held = len(names), 1
    split = Split(names[: kept - held], (), ())
    found: Found = {}
    jobs = [(name, seed) for seed in seeds for name in epochs]
    for number, (name, seed) in enumerate(track(jobs, len(jobs), "training", "network")):
        start = time.monotonic()
        trainer = train(name, seed, cache, split, epochs[name])
        seconds = time.monotonic() - start
        for test, scenes in tests.items():
            metrics = trainer.evaluate(scenes)
            abs_rel = metrics["refined"]["abs_rel"]
            say(f"{name}, seed {seed}, {seconds:.0f} s: AbsRel of {test} {abs_rel:.3f}")
            sides = {name: metrics["refined"]}
            if number == 0:
                sides["pseudo depth"] = metrics["pseudo"]
                sides["best single factor"] = metrics["global_scale"]
                sides["scale and shift of each picture"] = scale_and_shift(trainer, scenes)
            for side, values in sides.items():
                found.setdefault((side, test), []).append(values["abs_rel"])
                found.setdefault((side, f"{test}{SILOG}"), []).append(values["silog"])
    return rows_of(found, [*tests, *(f"{test}{SILOG}" for test in tests)])


def train(name: str, seed: int, cache: Cache, split: Split, epochs: int) -> Trainer:
    """A network, trained for some epochs."""
    cfg = config(name, seed, epochs)
    trainer = (DirectTrainer if name == FIRST else Trainer)(cfg, cache, split)
    train_all_epochs(trainer, Augmentation(flip=0.5, color=0.1))
    return trainer


def config(name: str, seed: int, epochs: int) -> CfgNode:
    """The same settings for all; the first implementation has its own loss and rate."""
    cfg = defaults()
    tree: dict[str, Any] = {
        "SEED": seed, "LOADER": {"BATCH": 8},
        "TRAIN": {"EPOCHS": epochs, "LR": 3e-3, "EMA": 0.95},
    }  # fmt: skip
    if name == FIRST:
        tree["LOSS"] = {"TERMS": [{"name": "mse", "weight": 1.0}]}
        tree["TRAIN"]["LR"] = 1e-3
    else:
        tree["MODEL"] = {"NAME": name, "BASE": MODELS[name]}
    merge(cfg, tree, "benchmark")
    cfg.freeze()
    return cfg


def scale_and_shift(trainer: Trainer, scenes: tuple[str, ...]) -> dict[str, float]:
    """Metrics of the scale and shift that are predicted from a picture's statistics."""
    fitted = ScaleAndShift(trainer.sample_training_batches(), trainer.cache.frames["clip"])
    found = evaluate(fitted, in_order(trainer, scenes), 0.0, trainer.cache, torch.float32)
    metrics: dict[str, float] = found["refined"]
    return metrics


def rows_of(found: Found, tests: Iterable[str]) -> list[Row]:
    """Means, intervals, and ratios to the pseudo depth and to the best baseline."""
    rows = []
    for (name, test), values in found.items():
        unit = "SILog" if test.endswith(SILOG) else "AbsRel"
        rows.append(row(f"{test}: {name}", statistics.mean(values), unit))
        if len(values) > 1:
            rows.append(row(f"{test}: {name}, +- (95%)", half_width(values), unit))
    for test in tests:
        mean = {name: statistics.mean(v) for (name, where), v in found.items() if where == test}
        others = min(value for name, value in mean.items() if name not in MODELS)
        for name in MODELS:
            share = mean[name] / mean["pseudo depth"]
            rows.append(row(f"{test}: {name}, of the pseudo depth", share, "x", at_most=0.7))
            share = mean[name] / others
            rows.append(row(f"{test}: {name}, of the best other", share, "x", at_most=1.0))
    return rows


def write_docs(path: Path, rows: list[Row]) -> None:
    """Write the table of refiners between two marks: size, cost, latency and measured quality."""
    values = {one["measure"]: one["value"] for one in rows}
    tests = sorted({name.partition(":")[0] for name in values})
    head = ["refiner", "parameters", "GFLOPs at 192x256", "at 480x640", "ms a frame, 192x256",
            *(test if test.endswith(SILOG) else f"{test}, AbsRel" for test in tests)]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    latency = latencies()
    for name, base in MODELS.items():
        size = sum(p.numel() for p in refiner_of(name).parameters())
        cells = [f"`{name}`, base {base}", f"{size / 1e6:.2f} M", f"{gflops(name, 192, 256):.2f}",
                 f"{gflops(name, 480, 640):.1f}", f"{1000 * latency[name]:.1f}"]  # fmt: skip
        lines.append("| " + " | ".join([*cells, *figures(values, name, tests)]) + " |")
    for name in ("pseudo depth", "best single factor",
                 "scale and shift of each picture", FIRST):  # fmt: skip
        cells = [name, "", "", "", ""]
        lines.append("| " + " | ".join([*cells, *figures(values, name, tests)]) + " |")
    # Text around the table is kept.
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    before, _, rest = text.partition(BEGIN)
    write_text(path, "\n".join([before + BEGIN, *lines, END + rest.partition(END)[2]]))


def figures(values: dict[str, float], name: str, tests: Sequence[str]) -> list[str]:
    """AbsRel on each test, with its interval where there is one."""
    cells = []
    for test in tests:
        half = values.get(f"{test}: {name}, +- (95%)")
        digits = 1 if test.endswith(SILOG) else 3
        value = f"{values[f'{test}: {name}']:.{digits}f}"
        cells.append(value + (f" +- {half:.{digits}f}" if half else ""))
    return cells


def refiner_of(name: str) -> RefinerNetwork:
    """An untrained refiner of the size that is measured."""
    return build_refiner({"NAME": name, "BASE": MODELS[name], "MAX_LOG": 1.0})


def gflops(name: str, height: int, width: int) -> float:
    """Billions of floating-point operations of a frame (a multiply-add is two)."""
    refiner = refiner_of(name).eval()
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        refiner(torch.rand(1, 3, height, width), torch.rand(1, 1, height, width) + 1)
    return counter.get_total_flops() / 1e9


def latencies() -> dict[str, float]:
    """Median seconds a frame of 192x256."""
    nets = {
        name: refiner_of(name).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for name in MODELS
    }
    rgb01, zoe_m = torch.rand(1, 3, 192, 256), torch.rand(1, 1, 192, 256) + 1
    seconds: dict[str, list[float]] = {name: [] for name in nets}
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(40):
            for name, net in nets.items():
                start = time.perf_counter()
                net(rgb01, zoe_m)
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[5:]) for name, values in seconds.items()}


if __name__ == "__main__":
    main()
