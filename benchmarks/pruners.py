"""What pruners save and lose: no pruning, the median pruner and successive halving (ASHA).

Random search on a small synthetic world, over seeds. Each configuration is trained once at full
length. Its values depend on seed and number alone, and its training is bit-exact, so every pruner
would see this same curve. So each pruner, as STUDY.PRUNER makes it, decides on the same curves one
trial after another, as with one worker. The seeds of the sides follow one another in turn.

Figures: trained epochs relative to no pruning and the best AbsRel of the same number of trials;
and the best AbsRel for the same number of epochs, a third of those that all trials need, where a
pruner begins more trials of the sequence.
"""

import math
import multiprocessing
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import optuna
import torch
from common.report import Row, options, report, row
from common.searched import config, silence, with_interval

from zoerefine.base.progress import track
from zoerefine.base.registries import PRUNERS
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.study.trials import OwnTraining
from zoerefine.depth.training.job import prepare
from zoerefine.lab.search.study.storage import silence_optuna
from zoerefine.lab.search.study.study import Study
from zoerefine.lab.search.worker import run_worker

SIDES = ("none", "median", "halving")


class Curve(NamedTuple):
    """A configuration that was trained at full length."""

    abs_rel: list[float]  # validation AbsRel after each epoch
    final: float  # of the trial


class Ended(NamedTuple):
    """A trial of a study with a pruner."""

    epochs: int
    value: float  # infinite where it was pruned


def main() -> None:
    """Print the table, and write it to the file of --json."""
    args = options(__doc__).parse_args()
    seeds, trials, epochs = (2, 6, 5) if args.quick else (4, 16, 18)
    silence_optuna()
    with tempfile.TemporaryDirectory(prefix="pruners-") as folder:
        root = Path(folder)
        synthesize(root / "world", 10, 1, 4, 0, 96, 128)
        curves = trained_curves(root, range(seeds), trials, epochs)
    found: dict[str, list[list[Ended]]] = {side: [] for side in SIDES}
    for sequence in curves:
        for side in SIDES:
            found[side].append(pruned(sequence, side))
    report(compared(found, trials, epochs), args, timed=False)


def trained_curves(root: Path, seeds: Sequence[int], trials: int, epochs: int) -> list[list[Curve]]:
    """The trials of a random search without pruning, for each seed; two studies at a time."""
    prepare(config(root, {}))
    jobs = [(root, seed, trials, epochs) for seed in seeds]
    with multiprocessing.get_context("spawn").Pool(2, silence) as pool:
        results = pool.imap(train, jobs)
        curves = list(track(results, len(jobs), "training", "study"))
        pool.close()
        pool.join()
    return curves


def train(job: tuple[Path, int, int, int]) -> list[Curve]:
    """A study in this process."""
    root, seed, trials, epochs = job
    torch.set_num_threads(1)
    cfg = config(root, {
        "SEED": seed, "RUN": {"NAME": f"seed-{seed}"},
        "STUDY": {"TRIALS": trials, "SAMPLER": "random", "PRUNER": "none"},
        "TRAIN": {"EPOCHS": epochs, "EMA": 0.9, "PICTURES": 0},
    })  # fmt: skip
    run = RunDir(root / "runs" / cfg.RUN.NAME)
    study = Study(OwnTraining(cfg), run)
    study.subject.save(run)
    run_worker(run, "benchmark")
    return [
        Curve([value for _, value in sorted(trial.intermediate_values.items())], trial.values[0])
        for trial in study.trials()
    ]


def pruned(sequence: Sequence[Curve], side: str) -> list[Ended]:
    """What a pruner makes of these trials, one after another."""
    pruner = PRUNERS.load(side)(len(sequence[0].abs_rel))
    study = optuna.create_study(pruner=pruner)
    return [follow(study, curve) for curve in sequence]


def follow(study: optuna.Study, curve: Curve) -> Ended:
    """A trial with a known curve."""
    trial = study.ask()
    for step, value in enumerate(curve.abs_rel):
        trial.report(value, step)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return Ended(step + 1, math.inf)
    study.tell(trial, curve.final)
    return Ended(len(curve.abs_rel), curve.final)


def within(trials: Sequence[Ended], budget: int) -> list[Ended]:
    """The trials that end before so many epochs have been trained."""
    taken: list[Ended] = []
    for trial in trials:
        budget -= trial.epochs
        if budget < 0:
            break
        taken.append(trial)
    return taken


def compared(found: dict[str, list[list[Ended]]], trials: int, epochs: int) -> list[Row]:
    """The rows of each side; differences are from no pruning with the same seed."""
    rows = []
    budget = trials // 3 * epochs
    for side, studies in found.items():
        share = [sum(one.epochs for one in study) / (trials * epochs) for study in studies]
        begun = [len(within(study, budget)) for study in studies]
        full = [sum(math.isfinite(one.value) for one in study) for study in studies]
        rows += [
            row(f"{side}: epochs relative to none", statistics.mean(share), "x"),
            row(f"{side}: trials at full length, of {trials}", statistics.mean(full), "trials"),
            row(f"{side}: trials ended in {budget} epochs", statistics.mean(begun), "trials"),
        ]
        whole = [best(study) for study in studies]
        equal = [best(within(study, budget)) for study in studies]
        for name, values, plain in (
            (f"best of {trials} trials", whole, [best(study) for study in found["none"]]),
            (f"best for {budget} epochs", equal,
             [best(within(study, budget)) for study in found["none"]]),
        ):  # fmt: skip
            rows += with_interval(f"{side}: {name}", values)
            if side != "none":
                gain = [ours - theirs for ours, theirs in zip(values, plain, strict=True)]
                rows += with_interval(f"{side}: {name}, difference from none", gain)
    return rows


def best(trials: Sequence[Ended]) -> float:
    """The smallest AbsRel of a trial at full length."""
    return min(one.value for one in trials)


if __name__ == "__main__":
    main()
