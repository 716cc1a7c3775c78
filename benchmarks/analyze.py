"""The batch analysis: the time to collect runs, and the error rates of its verdicts.

Both sides in one run: our `collect`, without and with its cache file, over runs with 1,000 logged
steps each, and TensorBoard's EventAccumulator over event files with the same scalars. The same for
runs of another repository, whose metrics are in event files alone. Then simulated studies: how
often a group is falsely called better, and how often a true difference is found.
"""

import json
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import yaml
from common.error_rates import error_rates, scene_error_rates
from common.report import Row, options, ratios, report, row

from zoerefine.base.config import defaults, to_dict
from zoerefine.lab.runs.collect import RunCache, collect

STEPS, EVALUATIONS = 1000, 50
TAG = "val/refined/abs_rel"
DIFFERENT_FILES = 10  # writing event files takes longer than reading them
ROUNDS = 3
# Seconds by number of runs: without and with the cache file.
GOALS_S: dict[int, tuple[float, float | None]] = {1000: (2.0, 0.5), 10_000: (20.0, None)}
GOAL_MIB = 500
STUDIES, QUICK_STUDIES = 1000, 200  # simulated


def main() -> None:
    """Print the table, and write it where asked."""
    parser = options(__doc__)
    parser.add_argument("--errors-only", action="store_true", help="simulated studies alone")
    args = parser.parse_args()
    rows = [] if args.errors_only else collection_times(args.quick)
    rows += error_rates(QUICK_STUDIES if args.quick else STUDIES) + scene_error_rates(STUDIES)
    report(rows, args)


def collection_times(quick: bool) -> list[Row]:
    """Rows for runs of our own and of another repository."""
    rows: list[Row] = []
    for count in (10, 100) if quick else (10, 100, 1000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(Path(folder), count)
    with tempfile.TemporaryDirectory() as folder:
        rows += measure_events(Path(folder), 100 if quick else 1000)
    return rows


def measure(folder: Path, count: int) -> list[Row]:
    """Rows for `count` runs."""
    for number in range(count):
        make_run(folder / "runs" / f"run{number:05d}", number)
    patterns, path = [str(folder / "runs" / "*")], folder / "collected.json"
    first = timed(lambda: collect_and_save(patterns, path))
    again = timed(lambda: collect_and_save(patterns, path))
    goals = GOALS_S.get(count, (None, None))
    rows = [
        row(f"{count} runs, without the cache file", first, "s", at_most=goals[0]),
        row(f"{count} runs, with the cache file", again, "s", at_most=goals[1]),
    ]
    if count <= 100:  # writing the event files takes longer than reading them
        for number in range(count):
            make_events(folder / "events" / f"run{number:05d}", number)
        theirs = timed(lambda: read_events(folder / "events"))
        rows.append(row(f"{count} runs, TensorBoard's reader", theirs, "s"))
        rows.append(row(f"{count} runs, TensorBoard's time over ours", theirs / first, "x"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return [*rows, row(f"{count} runs, peak memory of this process", peak, "MiB", at_most=GOAL_MIB)]


def measure_events(folder: Path, count: int) -> list[Row]:
    """Rows for `count` runs of another repository whose metrics are TensorBoard's event files.

    Both sides read the same files; the median of rounds in turn. Ours also reads each run's
    config, provenance and state, and groups the runs; from 500 runs on in a process for each core.
    TensorBoard's reader has one process, so the processor time of both is compared, too.
    """
    for number in range(DIFFERENT_FILES):
        make_events(folder / "events" / str(number), number)
    for number in range(count):
        make_foreign_run(folder / "runs" / f"run{number:05d}", number, folder / "events")
    patterns = [str(folder / "runs" / "*")]
    sides = {
        "ours": lambda: collect(patterns, metrics=[TAG]),
        "theirs": lambda: read_events(folder / "runs"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    processor: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            before = processor_s()
            seconds[name].append(timed(side))
            processor[name].append(processor_s() - before)
    path = folder / "collected.json"
    collect_and_save(patterns, path, [TAG])
    again = timed(lambda: collect_and_save(patterns, path, [TAG]))
    faster = ratios(seconds["theirs"], seconds["ours"])
    cheaper = ratios(processor["theirs"], processor["ours"])
    label = f"{count} runs with event files,"
    return [
        row(f"{label} without the cache file", median(seconds["ours"]), "s"),
        row(f"{label} with the cache file", again, "s"),
        row(f"{label} TensorBoard's reader", median(seconds["theirs"]), "s"),
        row(f"{label} TensorBoard's time over ours", median(faster), "x", 10.0, rounds=faster),
        row(f"{label} the same in processor time", median(cheaper), "x", rounds=cheaper),
    ]


def collect_and_save(patterns: list[str], path: Path, metrics: Sequence[str] = ()) -> None:
    """Collect with the cache file, as an analysis does."""
    cache = RunCache(path, metrics)
    collect(patterns, cache=cache, metrics=metrics)
    cache.save()


def timed(work: Callable[[], object]) -> float:
    """Seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def processor_s() -> float:
    """Processor seconds of this process, and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


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
