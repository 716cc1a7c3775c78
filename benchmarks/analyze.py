"""The batch analysis: the time to collect runs, and the error rates of its verdicts.

Both sides in one run: our `collect`, without and with its cache file, over runs with 1,000 logged
steps each, and TensorBoard's EventAccumulator over event files with the same scalars. The same for
runs of another repository, whose metrics are in event files alone. Then simulated studies: how
often equal groups are called different, and how often a true difference of two standard
deviations is found.
"""

import json
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean, median

import numpy as np
import yaml
from common.report import Row, options, report, row

from zoerefine.analysis.collect import collect
from zoerefine.analysis.comparisons import SceneTest, verdict
from zoerefine.analysis.groups import RunGroup
from zoerefine.analysis.run_cache import RunCache
from zoerefine.analysis.seed_statistics import ALPHA, holm, permutation_p, sign_flip_p
from zoerefine.config import defaults, to_dict

STEPS, EVALUATIONS = 1000, 50
TAG = "val/refined/abs_rel"
DIFFERENT_FILES = 10  # writing event files takes longer than reading them
ROUNDS = 3


def main() -> None:
    """Print the table, and write it where asked."""
    args = options(__doc__).parse_args()
    rows: list[Row] = []
    for count in (10, 100) if args.quick else (10, 100, 1000, 5000):
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(Path(folder), count)
    with tempfile.TemporaryDirectory() as folder:
        rows += measure_events(Path(folder), 100 if args.quick else 1000)
    studies = 200 if args.quick else 5000
    rows += error_rates(studies) + scene_error_rates(min(studies, 1000))
    report(rows, args.json)


def measure(folder: Path, count: int) -> list[Row]:
    """Rows for `count` runs."""
    for number in range(count):
        make_run(folder / "runs" / f"run{number:05d}", number)
    patterns, path = [str(folder / "runs" / "*")], folder / "collected.json"
    first = timed(lambda: collect_and_save(patterns, path))
    again = timed(lambda: collect_and_save(patterns, path))
    goal = 10.0 if count == 1000 else None
    rows = [
        row(f"{count} runs, without the cache file", first, "s", at_most=goal),
        row(f"{count} runs, with the cache file", again, "s"),
    ]
    if count <= 100:  # writing the event files takes longer than reading them
        for number in range(count):
            make_events(folder / "events" / f"run{number:05d}", number)
        theirs = timed(lambda: read_events(folder / "events"))
        rows.append(row(f"{count} runs, TensorBoard's reader", theirs, "s"))
        rows.append(row(f"{count} runs, TensorBoard's time over ours", theirs / first, "x"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return [*rows, row(f"{count} runs, peak memory of this process", peak, "MiB")]


def measure_events(folder: Path, count: int) -> list[Row]:
    """Rows for `count` runs of another repository whose metrics are TensorBoard's event files.

    Both sides read the same files; the median of rounds in turn. Ours also reads each run's
    config, provenance and state, and groups the runs.
    """
    for number in range(DIFFERENT_FILES):
        make_events(folder / "events" / str(number), number)
    for number in range(count):
        make_foreign_run(folder / "runs" / f"run{number:05d}", number, folder / "events")
    patterns = [str(folder / "runs" / "*")]
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(timed(lambda: collect(patterns, metrics=[TAG])))
        theirs.append(timed(lambda: read_events(folder / "runs")))
    path = folder / "collected.json"
    collect_and_save(patterns, path, [TAG])
    again = timed(lambda: collect_and_save(patterns, path, [TAG]))
    ratio = median(b / a for a, b in zip(ours, theirs, strict=True))
    label = f"{count} runs with event files,"
    return [
        row(f"{label} without the cache file", median(ours), "s"),
        row(f"{label} with the cache file", again, "s"),
        row(f"{label} TensorBoard's reader", median(theirs), "s"),
        row(f"{label} TensorBoard's time over ours", ratio, "x", at_least=10.0),
    ]


def collect_and_save(patterns: list[str], path: Path, metrics: Sequence[str] = ()) -> None:
    """Collect with the cache file, as an analysis does."""
    cache = RunCache(path, metrics)
    collect(patterns, cache=cache, metrics=metrics)
    cache.save()


def error_rates(studies: int) -> list[Row]:
    """Shares of simulated studies with normally distributed scores.

    The goal for a false "better" is 5%, plus two standard errors of a share from so few studies.
    """
    allowed = ALPHA + 2 * (ALPHA * (1 - ALPHA) / studies) ** 0.5
    rows = []
    for seeds in (3, 5, 6, 10):
        rng = np.random.default_rng(0)
        equal = [any(verdicts(rng.normal(0, 1, (5, seeds)))) for _ in range(studies)]
        two = np.array([[0.0], [2.0]])
        found = [any(verdicts(rng.normal(two, 1, (2, seeds)))) for _ in range(studies)]
        label, false, true = f"{seeds} seeds per group:", mean(equal), mean(found)
        rows.append(row(f"{label} 5 equal groups, a false 'better'", false, "", at_most=allowed))
        rows.append(row(f"{label} 2 groups 2 sd apart, 'better' found", true, ""))
    return rows


def scene_error_rates(studies: int) -> list[Row]:
    """The same for comparisons by scene: scenes differ much, and in one group from the other less.

    The goal is that of `error_rates`.
    """
    allowed = ALPHA + 2 * (ALPHA * (1 - ALPHA) / studies) ** 0.5
    rng = np.random.default_rng(0)
    rows = []
    for scenes in (6, 10, 40):
        equal, better = (
            mean(
                any(SceneTest(one, p).verdict.endswith("is better") for one, p in tested(drawn))
                for drawn in (rng.standard_t(4, (pairs, scenes)) + shift for _ in range(studies))
            )
            for pairs, shift in ((10, 0.0), (1, 1.0))
        )
        label = f"{scenes} scenes:"
        rows.append(row(f"{label} 10 equal pairs, a false 'better'", equal, "", at_most=allowed))
        rows.append(row(f"{label} 1 pair 1 sd apart, 'better' found", better, ""))
    return rows


def tested(differences: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Differences by scene, [pairs, scenes], with their adjusted p values."""
    return list(zip(differences, holm([sign_flip_p(one) for one in differences]), strict=True))


def verdicts(scores: np.ndarray) -> list[bool]:
    """For each pair of groups whether one is called better; scores is [groups, seeds]."""
    groups = [RunGroup(str(number), [], [], values) for number, values in enumerate(scores)]
    pairs = list(combinations(groups, 2))
    adjusted = holm([permutation_p(a.scores, b.scores) for a, b in pairs])
    return [
        verdict(a, b, p, len(pairs)).endswith("is better")
        for (a, b), p in zip(pairs, adjusted, strict=True)
    ]


def timed(work: Callable[[], object]) -> float:
    """Seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def abs_rel(number: int, step: int) -> float:
    """A curve that falls, a little higher for each run."""
    return 0.3 / (1 + step / 200) + number * 1e-5


def make_run(folder: Path, number: int) -> None:
    """A run directory with a log of STEPS steps and EVALUATIONS evaluations."""
    folder.mkdir(parents=True)
    tree = to_dict(defaults()) | {"SEED": number % 5}
    tree["TRAIN"] = tree["TRAIN"] | {"LR": 1e-3 * (1 + number // 5)}
    (folder / "config.yaml").write_text(yaml.safe_dump(tree))
    (folder / "status.json").write_text('{"state": "finished"}')
    (folder / "provenance.json").write_text('{"commit": "0000000"}')
    values = {"pseudo": {"abs_rel": 0.3}, "refined": {"abs_rel": abs_rel(number, STEPS)}}
    results = {"schema": 1, "data": "made", "data_digest": "d", "test": values, "test_scenes": {}}
    (folder / "results.json").write_text(json.dumps(results))
    step_row = {"phase": "train", "step": 0, "epoch": 0, "loss": 0.5, "lr": 1e-3, "wait_s": 0.001}
    val_row = {"phase": "val", "step": 0, "epoch": 0, "pseudo": {"abs_rel": 0.3}}
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(STEPS):
            file.write(json.dumps(step_row | {"step": step}) + "\n")
            if step % (STEPS // EVALUATIONS) == 0:
                refined = {"abs_rel": abs_rel(number, step)}
                row = val_row | {"step": step, "epoch": step, "refined": refined}
                file.write(json.dumps(row) + "\n")


def make_events(folder: Path, number: int) -> None:
    """The same curves as TensorBoard event files."""
    from torch.utils.tensorboard.writer import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step in range(STEPS):
            writer.add_scalar("train/loss", 0.5, step)
            if step % (STEPS // EVALUATIONS) == 0:
                writer.add_scalar(TAG, abs_rel(number, step), step)


def make_foreign_run(folder: Path, number: int, events: Path) -> None:
    """The run of another repository's script with an event file."""
    shutil.copytree(events / str(number % DIFFERENT_FILES), folder / "left" / "tb")
    recorded = {"commit": "0" * 40, "module": "train.py", "input": "input.yaml"}
    (folder / "provenance.json").write_text(json.dumps(recorded))
    (folder / "status.json").write_text('{"state": "finished"}')
    tree = {"SEED": number % 5, "TRAIN": {"LR": 1e-3 * (1 + number // 5), "EPOCHS": EVALUATIONS}}
    (folder / "input.yaml").write_text(yaml.safe_dump(tree))


def read_events(folder: Path) -> int:
    """Read every run's validation curve with TensorBoard; returns the number of points."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    points = 0
    for run in sorted(folder.iterdir()):
        events = run / "left" / "tb" if (run / "left").exists() else run
        accumulator = EventAccumulator(str(events), size_guidance={"scalars": 0})
        accumulator.Reload()
        points += len(accumulator.Scalars(TAG))
    return points


if __name__ == "__main__":
    main()
