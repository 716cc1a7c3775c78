"""What a search finds in a number of trials: samplers and pruners compared, and their cost.

On a small synthetic world, over seeds: the best validation AbsRel after half and all of the trials,
its difference from random search with the same seed, both with 95% intervals, and the trained
epochs relative to random search. Then the command itself on the same study: its wall time with two
workers relative to one, and the share of the workers' time that is not training.
"""

import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from common.report import Row, options, report, row
from common.searched import config, silence, with_interval
from optuna.trial import TrialState

from zoerefine.base.config import save_config
from zoerefine.base.progress import track
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.study.trials import OwnTraining
from zoerefine.depth.training.job import prepare
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.worker import run_worker

CHECKOUT = Path(__file__).resolve().parents[1]
RANDOM = ("random", "none")
SIDES = (RANDOM, ("random", "median"), ("tpe", "none"), ("tpe", "median"))


class Found(NamedTuple):
    """The outcome of a study."""

    values: list[float]  # AbsRel of each trial in order; infinite where it was pruned
    epochs: int  # trained, over all trials


def main() -> None:
    """Print the table, and write it to the file of --json."""
    args = options(__doc__).parse_args()
    seeds, trials, epochs = (2, 4, 3) if args.quick else (5, 24, 6)
    sides = (RANDOM, ("tpe", "median")) if args.quick else SIDES
    with tempfile.TemporaryDirectory(prefix="search-") as folder:
        root = Path(folder)
        synthesize(root / "world", 10, 1, 4, 0, 96, 128)
        rows = samplers(root, sides, range(seeds), trials, epochs)
        rows += command(root, 4 if args.quick else 8, 10 if args.quick else 60)
    report(rows, args, timed=False)


def samplers(
    root: Path, sides: Sequence[tuple[str, str]], seeds: Sequence[int], trials: int, epochs: int
) -> list[Row]:
    """Best AbsRel and trained epochs of each side; two studies run at a time."""
    prepare(config(root, {}))
    jobs = [(root, side, seed, trials, epochs) for seed in seeds for side in sides]
    found: dict[tuple[str, str], list[Found]] = {}
    with multiprocessing.get_context("spawn").Pool(2, silence) as pool:
        results = pool.imap(search, jobs)
        for (_, side, *_), result in zip(jobs, track(results, len(jobs), "searching", "study"),
                                         strict=False):  # fmt: skip
            found.setdefault(side, []).append(result)
        pool.close()
        pool.join()
    rows = []
    random, whole = found[RANDOM], statistics.mean(one.epochs for one in found[RANDOM])
    for side, studies in found.items():
        name = "{}, pruner {}".format(*side)
        for count in (trials // 2, trials):
            best = [min(one.values[:count]) for one in studies]
            other = [min(one.values[:count]) for one in random]
            gain = [ours - theirs for ours, theirs in zip(best, other, strict=True)]
            rows += with_interval(f"{name}: best of {count} trials", best)
            if side != RANDOM:
                rows += with_interval(f"{name}: best of {count}, difference from random", gain)
        share = statistics.mean(one.epochs for one in studies) / whole
        rows.append(row(f"{name}: epochs relative to random", share, "x"))
    return rows


def search(job: tuple[Path, tuple[str, str], int, int, int]) -> Found:
    """A study in this process."""
    root, (sampler, pruner), seed, trials, epochs = job
    torch.set_num_threads(1)
    name = f"{sampler}-{pruner}-{seed}"
    options = {"TRIALS": trials, "SAMPLER": sampler, "PRUNER": pruner}
    cfg = config(root, {
        "SEED": seed, "RUN": {"NAME": name}, "STUDY": options,
        "TRAIN": {"EPOCHS": epochs, "EMA": 0.9, "PICTURES": 0},
    })  # fmt: skip
    run = RunDir(root / "runs" / name)
    study = Study(OwnTraining(cfg), run)
    study.subject.save(run)
    run_worker(run, "benchmark")
    done = TrialState.COMPLETE
    values = [t.values[0] if t.state == done else math.inf for t in study.trials()]
    trained = (run.path / "trials").glob("*/metrics.jsonl")
    lines = [line for path in trained for line in RunDir(path.parent).metrics()]
    return Found(values, sum(line["phase"] == "val" for line in lines))


def command(root: Path, trials: int, epochs: int) -> list[Row]:
    """Time the command with one worker and with two."""
    wall, outside = {}, {}
    for workers in (1, 2):
        options = {"TRIALS": trials, "WORKERS": workers, "PRUNER": "none", "SAMPLER": "random"}
        cfg = config(root, {
            "RUN": {"NAME": f"workers{workers}", "ROOT": str(root / "runs")}, "STUDY": options,
            "TRAIN": {"EPOCHS": epochs},
        })  # fmt: skip
        path = root / f"workers{workers}.yaml"
        save_config(cfg, path)
        start = time.monotonic()
        subprocess.run(
            [sys.executable, CHECKOUT / "platform" / "search.py", "--config", path],
            check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        wall[workers] = time.monotonic() - start
        runs = (root / "runs" / f"workers{workers}" / "study" / "trials").iterdir()
        statuses = [RunDir(run).status() for run in runs]
        training = sum(status.ended - status.started for status in statuses)
        begun, ended = min(s.started for s in statuses), max(s.ended for s in statuses)
        outside[workers] = 1 - training / (workers * (ended - begun))
    return [
        row("wall time, 2 workers relative to 1", wall[2] / wall[1], "x"),
        row("1 worker: share outside training, after its start", outside[1], "", at_most=0.02),
        row("1 worker: wall time of the command", wall[1], "s"),
        row("2 workers: share outside training, after their start", outside[2], ""),
    ]


if __name__ == "__main__":
    main()
