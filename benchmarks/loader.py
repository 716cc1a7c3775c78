"""Compares loaders on the same samples: ours, those of other packages, and the limit of memory.

Every side is a process of its own (`peers/`) and first runs an epoch that is not counted. Then the
sides take turns, an epoch each, and medians are compared. The unit is a naive PyTorch data set; the
limit is one thread that copies the same rows into existing buffers that begin at a page. Other rows
say what two such threads reach, and what buffers of `np.empty` cost. Packages of other sides are
installed into environments of their own, which are kept for the next time. (FFCV is compiled there
and needs Debian's libopencv-dev, libturbojpeg0-dev and pkg-config. DALI takes 0.9 GB.)

Two more measurements are of our loader alone: a file that is not in memory, and 1,000,000 frames
against 1,000.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from common.loader_sides import Side, ask, start
from common.report import Row, left_out, options, ratios, report, row
from peers.side import own_mb

from zoerefine.base.machine.memory import aligned_empty
from zoerefine.base.messages import say
from zoerefine.base.progress import track
from zoerefine.depth.data.cache.cache import (
    PACKED,
    Cache,
    frame_dtype,
    open_cache,
    record_fields,
    record_stride,
    write_header,
)
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.data.synthetic import synthesize

HEIGHT, WIDTH, BATCH = 192, 256, 64
FIELDS = record_fields(HEIGHT, WIDTH)
STRIDE = record_stride(FIELDS)
LITDATA_NEEDS = ["lightning-utilities", "boto3", "botocore", "s3transfer", "jmespath",
                 "python-dateutil", "six", "tifffile", "obstore"]  # fmt: skip
DALI_NEEDS = ["astunparse", "gast", "six", "optree", "makefun", "nvtx"]
DALI = ("nvidia-dali-cuda120==2.4.0", *DALI_NEEDS, "nvidia-nvimgcodec-cu12==0.9.0.20")
FFCV_NEEDS = ["numba", "pandas", "terminaltables", "assertpy", "fastargs", "psutil"]


SIDES = (
    Side("limit: one thread copying rows", "ours", ("1", "aligned"), True),
    Side("limit of two threads", "ours", ("2", "aligned"), True),
    Side("one thread copying rows to np.empty", "ours", ("1", "usual"), True),
    Side("ours, 1 thread", "ours", ("1", "mmap"), True),
    Side("ours, 2 threads", "ours", ("2", "mmap"), True),
    Side("ours in memory, 2 threads", "ours", ("2", "ram")),
    Side("naive: Pillow, 0 workers", "naive", ("0", "pillow"), True, 0.125),
    Side("naive: Pillow, 2 workers", "naive", ("2", "pillow"), share=0.25),
    Side("Pillow draft mode, 0 workers", "naive", ("0", "draft"), share=0.125),
    Side("libjpeg-turbo, 0 workers", "naive", ("0", "turbo"), share=0.125),
    Side("libjpeg-turbo, 2 workers", "naive", ("2", "turbo"), share=0.25),
    Side("DALI on the CPU, 1 thread", "dali_", ("1",), share=0.125, packages=DALI),
    Side("DALI on the CPU, 2 threads", "dali_", ("2",), share=0.25, packages=DALI),
    Side("our decoding, 1 thread", "decoding", ("1", "threads"), share=0.125),
    Side("our decoding, 2 threads", "decoding", ("2", "threads"), share=0.25),
    Side("our decoding, 2 processes", "decoding", ("2", "processes"), share=0.25),
    Side("memmap and default_collate, 0 workers", "memmap", ("0",), True),
    Side("memmap and default_collate, 2 workers", "memmap", ("2",)),
    Side("LMDB, 0 workers", "lmdb_", ("0",), packages=("lmdb==3.0.0",)),
    Side("LMDB, 2 workers", "lmdb_", ("2",), packages=("lmdb==3.0.0",)),
    Side("HDF5, 0 workers", "hdf5_", ("0",), packages=("h5py==3.16.0",)),
    Side("HDF5, 2 workers", "hdf5_", ("2",), packages=("h5py==3.16.0",)),
    Side(
        "WebDataset, 0 workers",
        "webdataset_",
        ("0",),
        packages=("webdataset==1.0.2", "braceexpand"),
    ),
    Side(
        "WebDataset, 2 workers",
        "webdataset_",
        ("2",),
        packages=("webdataset==1.0.2", "braceexpand"),
    ),
    Side("LitData, 0 workers", "litdata_", ("0",), packages=("litdata==0.2.76", *LITDATA_NEEDS)),
    Side("LitData, 2 workers", "litdata_", ("2",), packages=("litdata==0.2.76", *LITDATA_NEEDS)),
    Side("FFCV, 1 thread", "ffcv_", ("1",), packages=("ffcv==1.0.2", *FFCV_NEEDS)),
    Side("FFCV, 2 threads", "ffcv_", ("2",), packages=("ffcv==1.0.2", *FFCV_NEEDS)),
)
LIMIT, NAIVE = SIDES[0].name, "naive: Pillow, 0 workers"
LIMIT_OF_TWO, TWO = SIDES[1].name, "ours, 2 threads"
OF_THE_LIMIT = {"ours, 1 thread": 0.95}
OF_TWO = 0.95
TIMES_NAIVE = {"ours, 1 thread": 150.0}
OF_PREADS, OF_1000_FRAMES = 0.9, 0.9


def main() -> None:
    """Measure, print the table, and write it with --json."""
    parser = options(__doc__)
    parser.add_argument(
        "--sides", nargs="+", default=[], metavar="WORD",
        help="compare only the sides of --quick and those whose names contain a word"
    )  # fmt: skip
    args = parser.parse_args()
    chosen = [side for side in SIDES if side.quick or any(one in side.name for one in args.sides)]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="loader-") as folder:
        root = Path(folder)
        say("making pictures and a packed cache of the same samples")
        make_pictures(root, 16 if args.quick else 64)
        make_cache(root / "cache", 768 if args.quick else 1536)
        sides = chosen if args.quick or args.sides else list(SIDES)
        rows += compare(root, sides, rounds=5 if args.quick else 9)
        if not args.sides:
            rows += cold(root / "cache", rounds=3 if args.quick else 7)
            rows += flat(root, rounds=3 if args.quick else 7)
    report(rows, args)


def make_pictures(root: Path, count: int) -> None:
    """Write frames as plain files: root/pictures/NAME.jpg, .depth.png, .zoe.png."""
    synthesize(root / "world", 4, 1, count // 4, 0)
    (root / "pictures").mkdir()
    for number, frame in enumerate(open_dataset(root / "world").frames):
        for source, ending in ((frame.rgb, "jpg"), (frame.depth, "depth.png"),
                               (frame.zoe, "zoe.png")):  # fmt: skip
            shutil.copy(source or "", root / "pictures" / f"{number:04d}.{ending}")


def make_cache(folder: Path, count: int, sparse: bool = False) -> None:
    """Write a packed cache of random bytes; a sparse one takes no disk space."""
    folder.mkdir()
    frames = np.zeros(count, frame_dtype(8))
    frames["state"], frames["name"] = PACKED, np.arange(count).astype("S8")
    np.save(folder / "frames.npy", frames)
    with open(folder / "records.bin", "wb") as file:
        file.truncate(count * STRIDE)
        rng = np.random.default_rng(0)
        for _ in range(0 if sparse else count):
            file.write(rng.bytes(STRIDE))
    clip = {"name": "0000", "scene": "scene00", "title": "", "speed": 0, "classes": []}
    header = {"digest": "", "label": "", "pseudo_label": "", "stride": STRIDE,
              "height": HEIGHT, "width": WIDTH, "depth_scale": 1e-3, "zoe_scale": ZOE_UNIT_M,
              "dataset_digest": "random", "clips": [clip]}  # fmt: skip
    write_header(folder, header)


def compare(root: Path, sides: list[Side], rounds: int) -> list[Row]:
    """Medians of interleaved epochs: samples/s, also relative to the limit and to the naive side,
    CPU time and memory."""
    samples = (root / "cache" / "records.bin").stat().st_size // STRIDE
    running = {side.name: made for side in sides if (made := start(side, root, samples))}
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in running}
    own_mb = {name: ask(running[name])["own_mb"] for name in tuple(running)}
    for _ in track(range(rounds), rounds, "measuring", "round"):
        for name, process in running.items():
            answers[name].append(ask(process))
    for process in running.values():
        process.communicate()
    rows = [left_out(side.name, "does not run here") for side in sides if side.name not in running]
    rates = {
        name: [one["samples"] / one["wall_s"] for one in found] for name, found in answers.items()
    }
    for name, found in answers.items():
        cpu = statistics.median(one["cpu_s"] / one["samples"] for one in found)
        rows += [
            median_row(f"{name}", rates[name], "samples/s"),
            share(f"{name}, of the limit", rates[name], rates[LIMIT], OF_THE_LIMIT.get(name)),
            share(f"{name}, times naive", rates[name], rates[NAIVE], TIMES_NAIVE.get(name)),
            row(f"{name}, CPU", 1000 * cpu, "ms/sample"),
            row(f"{name}, memory of its own", own_mb[name], "MB"),
        ]
    of_two = share(f"{TWO}, of the {LIMIT_OF_TWO}", rates[TWO], rates[LIMIT_OF_TWO], OF_TWO)
    return [*rows, of_two]


def median_row(measure: str, values: list[float], unit: str, goal: float | None = None) -> Row:
    """The median of rounds."""
    return row(measure, statistics.median(values), unit, goal, rounds=values)


def share(measure: str, values: list[float], others: list[float], goal: float | None = None) -> Row:
    """The median ratio of two sides that took turns."""
    return median_row(measure, ratios(values, others), "x", goal)


def cold(folder: Path, rounds: int) -> list[Row]:
    """Our loader against plain preads, on a file that is not in memory."""
    cache = open_cache(folder)
    path, order = folder / "records.bin", np.random.default_rng(0).permutation(len(cache))

    def preads() -> None:
        with open(path, "rb") as file, ThreadPoolExecutor(8) as pool:
            buffers = [aligned_empty((STRIDE,), np.uint8) for _ in range(8)]
            for _ in pool.map(
                lambda job: os.preadv(file.fileno(), [buffers[job[0] % 8]], int(job[1]) * STRIDE),
                enumerate(order),
            ):
                pass

    def ours() -> None:
        for _ in loader_of(open_cache(folder), order):
            pass

    seconds = turns({"preads": preads, "ours": ours}, rounds, before=lambda: forget(path))
    gb = len(cache) * STRIDE / 1e9
    preads_gb, ours_gb = ([gb / one for one in seconds[name]] for name in ("preads", "ours"))
    return [
        median_row("cold file, 8 threads of preads", preads_gb, "GB/s"),
        median_row("cold file, ours", ours_gb, "GB/s"),
        share("cold file, of parallel preads", ours_gb, preads_gb, OF_PREADS),
    ]


def flat(root: Path, rounds: int) -> list[Row]:
    """Our loader on 1,000,000 frames against 1,000: the same number of batches, each record read
    for the first time, from sparse files."""
    counts = (1_000, 1_000_000)
    rows, loaders = [], {}
    for count in counts:
        make_cache(root / str(count), count, sparse=True)
        start, before = time.perf_counter(), own_mb()
        loaders[count] = loader_of(open_cache(root / str(count)), None)
        after_the_first(loaders[count], 0)
        rows.append(row(f"{count:,} frames, to the first batch", time.perf_counter() - start, "s"))
        rows.append(row(f"{count:,} frames, memory of its own", own_mb() - before, "MB"))
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    batches = counts[0] // BATCH - 1
    for _ in range(rounds):
        for count in counts:
            del loaders[count]  # the system keeps pages that are mapped
            forget(root / str(count) / "records.bin")
            loaders[count] = loader_of(open_cache(root / str(count)), None)
            seconds[count].append(after_the_first(loaders[count], batches))
    rates = {count: [batches * BATCH / one for one in seconds[count]] for count in counts}
    for count in counts:
        measure = f"{count:,} frames, each read for the first time"
        rows.append(median_row(measure, rates[count], "samples/s"))
    slow, fast = rates[1_000_000], rates[1_000]
    return [*rows, share("1,000,000 frames, throughput of 1,000", slow, fast, OF_1000_FRAMES)]


def after_the_first(loader: Loader, batches: int) -> float:
    """Seconds for a number of batches after an epoch's first batch."""
    iterator = iter(loader)
    next(iterator)
    start = time.perf_counter()
    for _ in zip(range(batches), iterator, strict=False):
        pass
    seconds = time.perf_counter() - start
    iterator.close()  # type: ignore[attr-defined]
    return seconds


def loader_of(cache: Cache, indices: np.ndarray | None) -> Loader:
    """Our loader with two threads."""
    indices = np.arange(len(cache)) if indices is None else indices
    return Loader(cache, Sampler(cache, indices, BATCH, 0, OrderOptions()), 2)


def turns(
    sides: dict[str, Callable[[], None]], rounds: int, before: Callable[[], object]
) -> dict[str, list[float]]:
    """Seconds of sides that take turns; `before` runs before each turn."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            before()
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def forget(path: Path) -> None:
    """Let the system drop a file's pages from memory."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    cv2.setNumThreads(0)
    main()
