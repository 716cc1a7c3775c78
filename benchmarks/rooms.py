"""Does a refiner help in rooms that it has never seen? Leave-rooms-out cross-validation.

Real frames of many rooms (`--data`; without it, a small synthetic world, whose figures mean
nothing) are divided into folds by a file of scene names (`--folds`; one building is in one fold).
Each fold is tested with refiners that `zoerefine train` would make of the others with `--config`:
some of those rooms are kept for validation and calibration. Sides: the pseudo depth; the best
single factor of the other rooms; a scale and a shift for each picture by ridge regression on its
statistics; the first implementation's network; the refiner, also with its correction at full
strength and with another room's pseudo depth; and, for reference, the best factor of each room and
of each frame, which need the truth. With `--points`, also depth that simulated metric points
correct: alone, after the refiner, and with a refiner that takes them. Each refiner is then
fine-tuned on 20 labelled frames of every room of its fold with enough frames. `--unseen` adds data
of another camera, tested with refiners trained on the split of `--config`.

A figure of a room is the mean over its frames; the macro mean is over rooms. Intervals are over
rooms, so they hold for other rooms of the same kind. Trailing KEY VALUE pairs change the config.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from common.baselines import Direct
from common.report import Row, options, report, row
from common.rooms.folds import Fold, folds_in_turn, read_folds
from common.rooms.jobs import Data, Job, Result, run_job, start_worker
from common.rooms.point_sides import point_rows
from common.rooms.sides import FIRST, REFINED
from common.rooms.tables import (
    aim_rows,
    fine_tuning_rows,
    macro_rows,
    macro_table,
    mean_over_trainings,
    room_rows,
)
from common.timing import in_turns

from zoerefine.base.config import Config, load_config, to_dict
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.cli import run_command
from zoerefine.depth.data.split import Split, split_scenes
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.model import build_refiner

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
QUICK = {"TRAIN.EPOCHS": 2, "TRAIN.STEPS": 0}


def main() -> None:
    """Print the table."""
    args = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="rooms-") as folder:
        root = args.data or make_world(Path(folder) / "world")
        quick = QUICK if args.quick else {}
        cfg = load_config(args.config, args.overrides)
        cfg = load_config(
            cfg, {**quick, "DATA.ROOT": str(root), "CACHE.ROOT": f"{folder}/caches",
                  "TRAIN.PICTURES": 0}
        )  # fmt: skip
        jobs = list_jobs(args, cfg, Data.at(root, cfg).cache.scenes)
        results = run_jobs(jobs, args, to_dict(cfg), Path(folder))
        rows, details = summarize(results)
        rows += latency_rows(cfg, 1.0 if args.quick else 5.0)
    report(rows, args, details, timed=False)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = options(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, help="real frames of many scenes")
    parser.add_argument(
        "--folds", type=Path, help="scenes of each fold (rooms_folds.json beside this file)"
    )
    parser.add_argument("--unseen", type=Path, help="frames of another camera, to test with")
    parser.add_argument("--config", type=Path, default=CONFIGS / "rooms.yaml")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each fold (3)")
    parser.add_argument(
        "--first-seeds", type=int, default=1, help="of the first implementation's network (1)"
    )
    parser.add_argument(
        "--refiner-only", action="store_true",
        help="leave out the first implementation's network and fine-tuning",
    )  # fmt: skip
    parser.add_argument(
        "--points", action="store_true",
        help="also train refiners that take metric points, and test both with points",
    )  # fmt: skip
    parser.add_argument("--only-folds", type=int, help="use the first folds only; --quick: 2")
    parser.add_argument("--processes", type=int, default=2, help="trainings at a time (2)")
    parser.add_argument(
        "--limit", type=float, default=1e6, metavar="MINUTES", help="start no training after this"
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="changes of the config")
    return parser.parse_args()


def make_world(root: Path) -> Path:
    """A small synthetic world."""
    say("no --data: a small synthetic world, to show that the program works")
    synthesize(root, 10, 1, 6, 0, 120, 160)
    return root


def run_jobs(
    jobs: list[Job], args: argparse.Namespace, tree: dict[str, Any], folder: Path
) -> list[Result]:
    """What the jobs found, in their order; a limit of time leaves out the last ones."""
    end = time.monotonic() + 60 * args.limit
    threads = max(1, (os.cpu_count() or 1) // args.processes)
    found = {}
    with ProcessPoolExecutor(
        args.processes, get_context("spawn"), start_worker, (threads,)
    ) as pool:
        numbers = {
            pool.submit(run_job, job, tree, folder / f"run{number}", args.quick): number
            for number, job in enumerate(jobs)
        }
        for one in track(as_completed(numbers), len(jobs), "leave rooms out", "training"):
            if not one.cancelled():
                found[numbers[one]] = one.result()
                say(str(one.result()))
            if time.monotonic() > end:
                for waiting in numbers:
                    waiting.cancel()
    return [found[number] for number in sorted(found)]


def list_jobs(args: argparse.Namespace, cfg: Config, scenes: tuple[str, ...]) -> list[Job]:
    """A training for every fold and seed, and for every seed one for the unseen data."""
    if args.folds or args.data:
        folds = read_folds(args.folds or HERE / "rooms_folds.json", scenes)
    else:
        folds = folds_in_turn(scenes, 5)
    folds = folds[: args.only_folds or (2 if args.quick else None)]
    jobs = []
    for seed in range(1 if args.quick else args.seeds):
        first = not (args.quick or args.refiner_only) and seed < args.first_seeds
        label = not args.refiner_only and seed == 0
        jobs += [
            Job(split_without(fold, scenes, cfg, seed), seed, None, first, label, args.points)
            for fold in folds
        ]
        if args.unseen:
            fractions = cfg.DATA.VAL_FRACTION, cfg.DATA.TEST_FRACTION
            split = split_scenes(scenes, *fractions, cfg.DATA.SPLIT_SEED)
            jobs.append(Job(split, seed, args.unseen, first, points=args.points))
    return jobs


def split_without(fold: Fold, scenes: tuple[str, ...], cfg: Config, seed: int) -> Split:
    """The other rooms, some of them for validation."""
    others = tuple(scene for scene in scenes if scene not in fold)
    split = split_scenes(others, cfg.DATA.VAL_FRACTION, 0.0, seed)
    return Split(split.train, split.val, fold)


def summarize(results: list[Result]) -> tuple[list[Row], list[Row]]:
    """Print the means over rooms; returns the rows to print, and those that are only written."""
    folds = [one for one in results if not one.job.unseen]
    sides = mean_over_trainings([one.figures for one in folds])
    print(macro_table(sides))
    strength = sum(one.strength for one in folds) / len(folds)
    of_points = point_rows(sides, REFINED) if folds[0].job.points else []
    rows = [row("trainings", len(folds), "trainings"), *aim_rows(sides), *of_points,
            row("strength of the correction, mean", strength, "share"),
            *fine_tuning_rows([tuned for one in folds for tuned in one.fine_tuned])]  # fmt: skip
    details = [*macro_rows(sides), *room_rows(sides)]
    if len(folds) < len(results):
        unseen = mean_over_trainings([one.figures for one in results if one.job.unseen])
        print(f"another camera, {macro_table(unseen)}")
        if of_points:
            rows += [{**one, "measure": f"another camera, {one['measure']}"}
                     for one in point_rows(unseen, REFINED)]  # fmt: skip
        details += [{**one, "measure": f"another camera, {one['measure']}"}
                    for one in (*macro_rows(unseen), *room_rows(unseen))]  # fmt: skip
    return rows, details


@torch.inference_mode()
def latency_rows(cfg: Config, seconds: float) -> list[Row]:
    """Median milliseconds a picture of the cache's size, of untrained networks, in turns."""
    size = cfg.CACHE.HEIGHT, cfg.CACHE.WIDTH
    rgb01, zoe_m = torch.rand(1, 3, *size), torch.rand(1, 1, *size) + 1
    ours, first = build_refiner(cfg.MODEL).eval(), Direct().eval()
    found = in_turns(
        {REFINED: lambda: ours(rgb01, zoe_m), FIRST: lambda: first(rgb01, zoe_m)}, seconds
    )
    return [
        row(f"{side}: a picture, {torch.get_num_threads()} threads", float(torch.tensor(
            samples).median()), "ms") for side, samples in found.items()
    ]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(run_command(main))
