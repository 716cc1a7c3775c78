"""`zoerefine runs`: the time of the command without and with its index, and that of `du` and `rm`.

Folders are made that have the files of trained runs. Without the index means: the index is
deleted, and the files' contents are dropped from memory, so that they come from the disk. `du`
reads the folders and the sizes of the same files, and no contents. On a busy machine the processor
time says more than the wall time.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import yaml
from common.machine import of_installed_commands
from common.report import Row, options, report, row

from zoerefine.base.config import defaults, to_dict

CHECKOUT = Path(__file__).resolve().parents[1]
NAMES = 20  # of runs, with the same number of runs each
ROUNDS = 3
METRICS = ("abs_rel", "sq_rel", "rmse", "rmse_log", "log10", "silog", "d1", "d2", "d3")
FILES = {  # bytes
    "metrics.jsonl": 4000,
    "log.txt": 3000,
    "weights.sha256": 65,
    ".lock": 0,
    "tb/events.out": 3000,
    "checkpoints/best.safetensors": 4000,
    "checkpoints/step-1.pt": 4000,
    "checkpoints/step-2.pt": 4000,
}
WHERE = "TRAIN.LR>1e-4 and test.refined.abs_rel<0.2"
# Seconds by number of runs: without and with the index.
GOALS_S: dict[int, tuple[float, float]] = {10_000: (10.0, 0.5)}


def main() -> None:
    """Print the table, and write it to the file of --json."""
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, action="append", metavar="N", help="how many runs")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the runs here, and keep them"
    )
    args = parser.parse_args()
    rows: list[Row] = []
    for count in args.runs or ([300] if args.quick else [1000, 10_000]):
        with tempfile.TemporaryDirectory(prefix="runs-list-") as folder:
            rows += measure(args.keep or Path(folder), count)
            if not args.keep:
                rows += timed_removal(Path(folder), count)
    report(rows, args)


def measure(folder: Path, count: int) -> list[Row]:
    """Rows for `count` runs."""
    made_long_ago(folder, count)
    os.sync()
    cold_goal, warm_goal = GOALS_S.get(count, (None, None))
    rows = [
        *timed(folder, f"{count} runs, without the index", (), cold_goal, is_cold=True),
        *timed(folder, f"{count} runs, with the index", (), warm_goal),
        *timed(folder, f"{count} runs, --sort size", ("--sort", "size"), warm_goal),
    ]
    list_command(folder, "--where", WHERE)  # stores the config keys
    rows += timed(folder, f"{count} runs, --where on a key and a metric", ("--where", WHERE))
    file = folder / "runs" / ".runs-index"
    return [
        *rows,
        row(f"{count} runs, one of which has changed", timed_after_change(folder), "s"),
        row(f"{count} runs, du", median(du_s(folder) for _ in range(ROUNDS)), "s"),
        row(f"{count} runs, size of the index", file.stat().st_size / 2**20, "MiB"),
    ]


def made_long_ago(folder: Path, count: int) -> None:
    """Make the runs. Their times must be older than those that the index takes for unsettled."""
    if not (folder / "runs").exists():
        config = to_dict(defaults())
        for number in range(count):
            make_run(
                folder / "runs" / f"name{number % NAMES:02d}" / f"{number:016x}", number, config
            )
    time.sleep(3)


def make_run(folder: Path, number: int, config: dict) -> None:
    """The files of a trained run: documents as they are, logs and weights of a few blocks."""
    folder.mkdir(parents=True)
    metrics = {name: 0.1 + ((number * 7919) % 10_007) / 1e5 for name in METRICS}
    both = {"refined": metrics, "pseudo": metrics, "objects": metrics, "detail": metrics}
    scenes = {f"scene{scene:02d}": both for scene in range(8)}
    results = {"schema": 1, "test": both, "test_scenes": scenes, "val": both | {"scenes": scenes}}
    started = 1.79e9 + number
    config["TRAIN"]["LR"] = 10 ** (-5 + number % 997 / 300)
    status = {"state": "finished", "reason": "", "started": started, "ended": started + 600}
    packages = {f"package{n}": f"{n}.0.1" for n in range(100)}
    documents = {
        "status.json": status | {"pid": 1, "host": "vm"},
        "provenance.json": {
            "commit": f"{number:040x}",
            "seed": number % 5,
            "module": "zoerefine.train",
            "packages": packages,
        },
        "results.json": results,
        "split.json": {"train": [], "val": [], "test": []},
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2))
    (folder / "config.yaml").write_text(yaml.dump(config, Dumper=yaml.CSafeDumper))
    for name in ("checkpoints", "engine", "tb"):
        (folder / name).mkdir()
    for name, length in FILES.items():
        (folder / name).write_bytes(b"\n" * length)


def timed(
    folder: Path, name: str, words: Sequence[str], goal: float | None = None, is_cold: bool = False
) -> list[Row]:
    """Medians of wall time and processor time of the command in seconds."""
    walls, processor = [], []
    for _ in range(ROUNDS):
        if is_cold:
            forget(folder)
        before = processor_s()
        walls.append(list_command(folder, *words))
        processor.append(processor_s() - before)
    return [
        row(name, median(walls), "s", at_most=goal),
        row(f"{name}, processor time", median(processor), "s"),
    ]


def processor_s() -> float:
    """Processor seconds of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed_removal(folder: Path, count: int) -> list[Row]:
    """The wall time of removing two names of runs, and that of `rm` for two others."""
    removed = list_command(folder, "--remove", "--older-than", "0", "--name", "name0[12]", "--yes")
    begun = time.perf_counter()
    subprocess.run(["rm", "-r", *(folder / "runs").glob("name0[34]")], check=True)
    by_rm = time.perf_counter() - begun
    some = 2 * count // NAMES
    return [
        row(f"{count} runs, --remove --yes of {some}", removed, "s"),
        row(f"{count} runs, rm -r of {some} others", by_rm, "s"),
    ]


def timed_after_change(folder: Path) -> float:
    """The median wall time of the command after a tag was given to a run."""
    times = []
    for turn in range(ROUNDS):
        changed = next((folder / "runs" / "name00").glob("0*"))
        list_command(folder, str(changed), "--tag", f"turn{turn}")
        time.sleep(3)
        times.append(list_command(folder))
    return median(times)


def forget(folder: Path) -> None:
    """Delete the index, and drop what the kernel holds of the files' contents."""
    (folder / "runs" / ".runs-index").unlink(missing_ok=True)
    for place, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(os.path.join(place, name), os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def list_command(folder: Path, *words: str) -> float:
    """Wall seconds of `zoerefine runs`, printing to a pipe."""
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "zoerefine", "runs", *words], cwd=folder, check=True,
        capture_output=True, env=environment(folder),
    )  # fmt: skip
    return time.perf_counter() - begun


def environment(folder: Path) -> dict[str, str]:
    """The environment variables of an installed command of this checkout."""
    return of_installed_commands(folder / "pycache") | {"PYTHONPATH": str(CHECKOUT)}


def du_s(folder: Path) -> float:
    """Wall seconds of `du`."""
    begun = time.perf_counter()
    subprocess.run(["du", "-s", str(folder / "runs")], check=True, capture_output=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
