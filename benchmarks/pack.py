"""Compares packing a data set with only decoding its files.

The limit is one thread for each core, which reads and decodes files and keeps no result. Packing
also resizes, computes digests, writes, and waits for the disk.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import cv2
from common.report import Row, options, ratios, report, row

from zoerefine.base.files.images import read_rgb
from zoerefine.base.progress import track
from zoerefine.depth.data.cache.decode import read_depth, read_frame, read_objects, read_zoe
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.dataset import Dataset, Frame
from zoerefine.depth.data.depth_codec import DepthEncoding
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.synthetic import synthesize

HEIGHT, WIDTH = 192, 256
OF_THE_LIMIT = {"decode-only limit": 0.9}


def main() -> None:
    """Measure, print the table, and write it with --json."""
    parser = options(__doc__)
    parser.add_argument(
        "--data", type=Path, help="measure this data set instead of a synthetic one"
    )
    args = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory(prefix="pack-") as folder:
        root = Path(folder)
        if not args.data:
            synthesize(root / "world", 4, 1, 32 if args.quick else 128, 0)
        rows = measure(open_dataset(args.data or root / "world"), root, 5 if args.quick else 11)
    report(rows, args)


def measure(dataset: Dataset, root: Path, rounds: int) -> list[Row]:
    """Medians of interleaved rounds, in frames/s."""
    sides = {
        "decode-only limit, all cores": lambda: all_cores(
            partial(decode, encoding=dataset.depth_encoding), dataset
        ),
        "decoding and resizing, all cores": lambda: all_cores(
            lambda frame: read_frame(frame, dataset.depth_encoding, HEIGHT, WIDTH), dataset
        ),
        "packing": lambda: build_cache(dataset, HEIGHT, WIDTH, root / "caches"),
        "opening a packed cache": lambda: build_cache(dataset, HEIGHT, WIDTH, root / "kept"),
    }
    for side in sides.values():
        side()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in track(range(rounds), rounds, "measuring", "round"):
        for name, side in sides.items():
            shutil.rmtree(root / "caches", ignore_errors=True)
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    rates = {name: [len(dataset.frames) / one for one in s] for name, s in seconds.items()}
    speed = {name: statistics.median(values) for name, values in rates.items()}
    rows = [row(name, value, "frames/s", rounds=rates[name]) for name, value in speed.items()]
    for limit in ("decode-only limit", "decoding and resizing"):
        shares = ratios(rates["packing"], rates[f"{limit}, all cores"])
        share, goal = statistics.median(shares), OF_THE_LIMIT.get(limit)
        rows.append(row(f"packing, of the {limit}", share, "x", goal, rounds=shares))
    return rows


def all_cores(work: Callable[[Frame], object], dataset: Dataset) -> None:
    """Do something with every frame, in one thread for each core."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(work, dataset.frames):
            pass


def decode(frame: Frame, encoding: DepthEncoding) -> None:
    """Decode the files of one frame."""
    read_rgb(frame.rgb)
    if frame.depth is not None:
        read_depth(frame.depth, encoding)
    if frame.zoe is not None:
        read_zoe(frame.zoe)
    if frame.objects is not None:
        read_objects(frame.objects)


if __name__ == "__main__":
    main()
