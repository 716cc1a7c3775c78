"""Loading a packed cache against decoding files every time, and against the limit of memory.

Sides, interleaved in one run: the naive data set (Pillow: open, resize, to float, one sample
after another), our loader with one and two threads, and the limit: one thread that copies the
same rows with `np.take` into a ready buffer.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from zoerefine.data.cache import Cache, build_cache
from zoerefine.data.dataset import Dataset
from zoerefine.data.loader import Loader
from zoerefine.data.readers import open_dataset
from zoerefine.data.synthetic import synthesize
from zoerefine.progress import track

HEIGHT, WIDTH, BATCH = 192, 256, 64
REPEATS = 16  # of every record in an epoch, so that one lasts long enough to time
GOALS = {"one thread, share of the copy limit": 0.95, "two threads, share of the copy limit": 1.6,
         "one thread, times naive": 150.0}  # fmt: skip


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under 50 seconds on two cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows go")
    args = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        synthesize(root / "world", 4, 1, 16 if args.quick else 64, 0)
        dataset = open_dataset(root / "world")
        cache = build_cache(dataset, HEIGHT, WIDTH, root / "caches", 0)
        rows = measure(dataset, cache, rounds=5 if args.quick else 15)
    for row in rows:
        goal = f"goal {row['goal']}, {'met' if row['ok'] else 'MISSED'}" if row["goal"] else ""
        print(f"{row['measure']:<42} {row['value']:>12.2f} {row['unit']:<10} {goal}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


def measure(dataset: Dataset, cache: Cache, rounds: int) -> list[dict[str, object]]:
    """Medians of interleaved rounds, and their ratios."""
    indices = np.tile(np.arange(len(cache)), REPEATS)
    sides: dict[str, Callable[[], int]] = {
        "naive": lambda: naive(dataset),
        "copy limit": lambda: copy_limit(cache, indices),
        "one thread": lambda: ours(cache, indices, 1),
        "two threads": lambda: ours(cache, indices, 2),
    }
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():  # warm the page cache and the allocator
        side()
    for _ in track(range(rounds), rounds, "measuring", "round"):
        for name, side in sides.items():
            start = time.perf_counter()
            samples = side()
            speeds[name].append(samples / (time.perf_counter() - start))
    rate = {name: float(np.median(values)) for name, values in speeds.items()}
    rows = [row(name, value, "samples/s") for name, value in rate.items()]
    for name in ("one thread", "two threads"):
        rows.append(row(f"{name}, share of the copy limit", rate[name] / rate["copy limit"], "x"))
        rows.append(row(f"{name}, times naive", rate[name] / rate["naive"], "x"))
    return rows


def row(measure: str, value: float, unit: str) -> dict[str, object]:
    """A row of the table."""
    goal = GOALS.get(measure)
    return {"measure": measure, "value": value, "unit": unit, "goal": goal,
            "ok": goal is None or value >= goal}  # fmt: skip


def naive(dataset: Dataset) -> int:
    """What a Dataset's __getitem__ usually does: Pillow, resize, float; one after another."""
    frames = dataset.frames[:BATCH]
    for frame in frames:
        for path in filter(None, (frame.rgb, frame.depth, frame.zoe)):
            with Image.open(path) as image:
                small = np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR))
            torch.from_numpy(small.astype(np.float32) / 255)
    return len(frames)


def copy_limit(cache: Cache, indices: np.ndarray) -> int:
    """One thread copying whole records into one ready buffer."""
    rows = cache.records.view(np.int64)
    buffer = np.empty((BATCH, rows.shape[1]), np.int64)
    order = np.random.default_rng(0).permutation(indices)
    for start in range(0, len(order), BATCH):
        chunk = order[start : start + BATCH]
        np.take(rows, chunk, 0, out=buffer[: len(chunk)], mode="clip")
    return len(order)


def ours(cache: Cache, indices: np.ndarray, threads: int) -> int:
    """An epoch of our loader."""
    return sum(len(batch.index) for batch in Loader(cache, indices, BATCH, 0, threads=threads))


if __name__ == "__main__":
    main()
