"""The training loop against a minimal loop with the same network on data in memory.

The minimal loop has the same batches as float tensors: forward, loss, backward, clipping,
optimizer, average; no loading, log, checkpoint or augmentation. The sides alternate by epoch;
medians, and the median ratio over rounds. A third side is the whole loop while records are verified
in the background, again and again. Also: the share of data wait, and the cost of a checkpoint; and
whole trainings in one process against two DDP processes on the same cores, which share each batch.
"""

import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common.report import Row, options, report, row
from yacs.config import CfgNode

from zoerefine.base.config import defaults, merge
from zoerefine.base.progress import track
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.cache.verification import BackgroundVerification
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.data.split import Split
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.training.loop import Loop
from zoerefine.depth.training.trainer import Trainer

HEIGHT, WIDTH = 192, 256
OF_MINIMAL, WAITING, HELD_UP, OF_UNVERIFIED = 0.97, 0.01, 0.01, 0.97
TRAIN = Path(__file__).resolve().parents[1] / "platform" / "train.py"
TORCHRUN = "torch.distributed.run", "--standalone", "--nproc-per-node"
WHOLE_TRAINING = """
RUN: {{ROOT: {root}/runs}}
DATA: {{ROOT: {root}/world, VAL_FRACTION: 0.25, TEST_FRACTION: 0.25}}
CACHE: {{ROOT: {root}/caches}}
LOADER: {{BATCH: 8}}
TRAIN: {{EPOCHS: {epochs}, EVAL_EVERY: {epochs}, CALIBRATE: false, PICTURES: 0}}
"""


def main() -> None:
    """Print the table, and write it where asked."""
    args = options(__doc__).parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        rows += measure(Path(folder), *((2, 24) if args.quick else (12, 96)))
        rows += one_and_two_processes(Path(folder), *((1, 2) if args.quick else (5, 3)))
    report(rows, args)


def measure(root: Path, rounds: int, frames: int) -> list[Row]:
    """Images/s of both loops, and the loop's own shares."""
    synthesize(root / "world", 4, 1, frames // 4, 0)
    cache = build_cache(open_dataset(root / "world"), HEIGHT, WIDTH, root / "caches")
    cfg = config(2 * rounds + 1)
    split = Split(cache.scenes, (), ())
    trainer, verification = Trainer(cfg, cache, split), BackgroundVerification(cache)
    loop = Loop(cfg, RunDir(root / "run"), trainer, None, {}, verification)
    minimal = Trainer(cfg, cache, split)
    ready = list(minimal.prefetch(minimal.loader))
    loop.bar = track_nothing()
    loop.run_epoch(0)
    bare_epoch(minimal, ready)
    loop.timer.take()
    epochs = itertools.count(1)
    sides: dict[str, Callable[[], None]] = {
        "whole loop": lambda: loop.run_epoch(next(epochs)),
        "whole loop, verifying records": lambda: verified_epoch(loop, cache, next(epochs)),
        "minimal loop": lambda: bare_epoch(minimal, ready),
    }
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for number in track(range(rounds), rounds, "measuring", "round"):
        # The order alternates, too: the second of a round may run on a warmer machine.
        for name in sorted(sides, reverse=bool(number % 2)):
            start = time.perf_counter()
            sides[name]()
            speeds[name].append(frames / (time.perf_counter() - start))
    share = loop.timer.totals()["wait_share"]
    stalls = []
    for _ in range(5):
        start = time.perf_counter()
        loop.save_if_due(last=True)  # returns when the state is copied; writing continues
        stalls.append(time.perf_counter() - start)
        loop.writer.wait()
    median = {name: statistics.median(values) for name, values in speeds.items()}
    of_minimal = ratio(speeds["whole loop"], speeds["minimal loop"])
    of_unverified = ratio(speeds["whole loop, verifying records"], speeds["whole loop"])
    # A checkpoint is due once a minute at most: its share is of that minute.
    stall = statistics.median(stalls)
    held_up = stall / loop.cfg.TRAIN.CHECKPOINT_S
    return [
        *(row(name, value, "images/s") for name, value in median.items()),
        row("whole loop, of the minimal one", of_minimal, "x", OF_MINIMAL),
        row("whole loop, verifying, of not verifying", of_unverified, "x", OF_UNVERIFIED),
        row("data wait, share of the time", share, "", at_most=WAITING),
        row("checkpoint, training held up", 1000 * stall, "ms"),
        row("checkpoint, share of the time between two", held_up, "", at_most=HELD_UP),
        row("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MB"),
    ]


def one_and_two_processes(root: Path, rounds: int, epochs: int) -> list[Row]:
    """Images/s of the same training in one process and in two, without starting and evaluation."""
    (root / "whole.yaml").write_text(WHOLE_TRAINING.format(root=root, epochs=epochs))
    commands = {1: [str(TRAIN)], 2: ["-m", *TORCHRUN, "2", str(TRAIN)]}
    speeds: dict[int, list[float]] = {count: [] for count in commands}
    for number in track(range(rounds), rounds, "measuring", "round"):
        for count in sorted(commands, reverse=bool(number % 2)):
            name = f"p{count}-{number}"
            words = ["--config", str(root / "whole.yaml"), "RUN.NAME", name]
            subprocess.run(
                [sys.executable, *commands[count], *words], check=True, capture_output=True
            )
            [results] = root.glob(f"runs/{name}/*-*/results.json")
            speeds[count].append(json.loads(results.read_text())["images_per_s"])
    return [
        row("whole training, one process", statistics.median(speeds[1]), "images/s"),
        row("whole training, two DDP processes", statistics.median(speeds[2]), "images/s"),
        row("two DDP processes, of one", ratio(speeds[2], speeds[1]), "x"),
    ]


def ratio(values: list[float], others: list[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(one / other for one, other in zip(values, others, strict=True))


class EndlessVerification(BackgroundVerification):
    """Verifies a cache again and again, at the rate of one verification."""

    def _verify(self) -> None:
        while not self._stopped.is_set():
            super()._verify()


def verified_epoch(loop: Loop, cache: Cache, epoch: int) -> None:
    """An epoch of the whole loop beside a verification."""
    with EndlessVerification(cache):
        loop.run_epoch(epoch)


def config(epochs: int) -> CfgNode:
    """The defaults with a batch size for a laptop."""
    cfg = defaults()
    merge(cfg, {"LOADER": {"BATCH": 8}, "TRAIN": {"EPOCHS": epochs}}, "benchmark")
    cfg.freeze()
    return cfg


def bare_epoch(trainer: Trainer, ready: list[DeviceBatch]) -> None:
    """The minimal loop."""
    for batch in ready:
        with torch.autocast(
            trainer.device.type, trainer.dtype, enabled=trainer.dtype != torch.float32
        ):
            refined_m = trainer.refiner(batch.rgb01, batch.zoe_m)
        loss, _ = trainer.loss(refined_m, batch.zoe_m, batch.depth_m, batch.objects, batch.rgb01)
        trainer.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainer.refiner.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.average.update(trainer.step)


def track_nothing() -> Any:
    """A progress bar that draws nothing."""
    from tqdm import tqdm

    return tqdm(itertools.count(), disable=True)


if __name__ == "__main__":
    main()
