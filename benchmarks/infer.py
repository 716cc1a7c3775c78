"""The inference command against its engine alone, and against the limit that its files set.

"Engine alone" refines the same frames from memory in the same batches: several calls at a time,
as the command makes them, or one call at a time; the faster one counts. "Reading and writing
alone" decodes and encodes the same files in one thread per core and refines nothing. On a CPU,
engine and files share the cores, so the limit is the sum of both times at their best; on a GPU
it is the longer one. Sides take turns, one pass over all frames each; values are medians. The
command runs in this process: loading the bundle is counted, starting Python is not.
"""

import contextlib
import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from common.report import Row, options, report, row

from zoerefine.base.progress import track
from zoerefine.cli import main as zoerefine
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.layouts import habitatdyn
from zoerefine.depth.data.synthetic import synthesize
from zoerefine.depth.exporting.bundle.bundle import Engine, load_bundle
from zoerefine.depth.infer.pipeline import engine_pool
from zoerefine.depth.infer.results import ResultFolder
from zoerefine.depth.infer.sources import SourceFrame, open_source

Pair = tuple[np.ndarray, np.ndarray]  # a frame's rgb and zoe
PLATFORM = Path(__file__).resolve().parents[1] / "platform"
BATCH = 4  # the command's default
GOAL = 0.9  # of the limit
CONFIG = """
RUN: {{NAME: bench, ROOT: {root}/runs}}
DATA: {{ROOT: {root}/world, VAL_FRACTION: 0.25, TEST_FRACTION: 0.25}}
CACHE: {{ROOT: {root}/caches}}
LOADER: {{BATCH: 8}}
TRAIN: {{EPOCHS: 1}}
"""


def main() -> None:
    """Print the table; with --json also write it to a file."""
    parser = options(__doc__)
    parser.add_argument("--bundle", type=Path, help="default: one of a briefly trained refiner")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory(prefix="infer-") as folder:
        root = Path(folder)
        synthesize(root / "world", 4, 1, 8 if args.quick else 48, 0)
        rows = measure(args.bundle or make_bundle(root), root, 3 if args.quick else 11)
    report(rows, args)


def make_bundle(root: Path) -> Path:
    """Train for a moment and export: the speed of a bundle does not depend on its weights."""
    (root / "bench.yaml").write_text(CONFIG.format(root=root))
    run = last_line("train", "--config", root / "bench.yaml")
    return Path(last_line("export", run))


def last_line(script: str, *words: object) -> str:
    """Run a script of platform/; returns the last line that it prints, the path of its result."""
    command = [sys.executable, str(PLATFORM / f"{script}.py"), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[-1]


def measure(bundle: Path, root: Path, rounds: int) -> list[Row]:
    """Medians of interleaved rounds, in frames/s."""
    rgb, depth, out = root / "world" / habitatdyn.RGB, root / "world" / habitatdyn.ZOE, root / "out"
    engine, frames = load_bundle(bundle), list(open_source(str(rgb)).frames())
    pairs = [read(frame, depth) for frame in frames]
    results = ResultFolder(out, engine.digest, engine.manifest["commit"])
    words = ["infer", str(bundle), "--rgb", str(rgb), "--depth", str(depth), "--out", str(out)]
    sides: dict[str, Callable[[], object]] = {
        "engine alone, parallel calls": lambda: parallel_calls(engine, pairs),
        "engine alone, one call at a time": lambda: single_calls(engine, pairs),
        "reading and writing alone, all cores": lambda: files_alone(frames, depth, results),
        "read, refine, write in turn": lambda: one_by_one(engine, frames, depth, results),
        "whole command": lambda: silent_command(words),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    for _ in track(range(rounds), rounds, "measuring", "round"):
        for name, side in sides.items():
            shutil.rmtree(out, ignore_errors=True)
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    speed = {name: len(frames) / statistics.median(s) for name, s in seconds.items()}
    return [row(name, value, "frames/s") for name, value in speed.items()] + shares(
        speed, engine.device == "cuda"
    )


def shares(speed: dict[str, float], on_gpu: bool) -> list[Row]:
    """The command's speed as shares of the engine's and of the limit.

    Args:
        on_gpu: whether the engine leaves the CPU to reading and writing.
    """
    engine = max(value for name, value in speed.items() if name.startswith("engine alone"))
    files = speed["reading and writing alone, all cores"]
    limit = min(engine, files) if on_gpu else 1 / (1 / engine + 1 / files)
    whole, in_turn = speed["whole command"], speed["read, refine, write in turn"]
    at_limit = whole / limit >= GOAL
    return [
        row("whole command, of read, refine, write in turn", whole / in_turn, "x"),
        row("limit of engine and files together", limit, "frames/s"),
        row("whole command, of the engine alone", whole / engine, "x",
            None if at_limit else GOAL),
        row("whole command, of the limit", whole / limit, "x", GOAL),
    ]  # fmt: skip


def read(frame: SourceFrame, depth: Path) -> Pair:
    """Decode the two files of a frame."""
    return frame.read(), read_zoe(depth / f"{frame.name}.png")


def parallel_calls(engine: Engine, pairs: list[Pair]) -> None:
    """Refine frames in memory, with the threads that the command uses."""
    with engine_pool(engine) as pool:
        for _ in pool.map(lambda batch: call(engine, batch), batches(pairs)):
            pass


def single_calls(engine: Engine, pairs: list[Pair]) -> None:
    """Refine frames in memory, each call with all cores."""
    for batch in batches(pairs):
        call(engine, batch)


def batches(pairs: list[Pair]) -> list[list[Pair]]:
    """Batches as the command makes them."""
    return [pairs[start : start + BATCH] for start in range(0, len(pairs), BATCH)]


def call(engine: Engine, batch: list[Pair]) -> np.ndarray:
    """Refine a batch: uint16 [B, H, W]."""
    rgb, zoe = zip(*batch, strict=True)
    return engine(np.stack(rgb), np.stack(zoe))


def files_alone(frames: list[SourceFrame], depth: Path, results: ResultFolder) -> None:
    """Read every frame and write its pseudo depth as if it were refined."""

    def read_and_write(frame: SourceFrame) -> None:
        rgb, zoe = read(frame, depth)
        results.write(frame.name, "", rgb, [zoe])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(read_and_write, frames):
            pass


def one_by_one(
    engine: Engine, frames: list[SourceFrame], depth: Path, results: ResultFolder
) -> None:
    """The simplest program: read a batch, refine it, write it, then the next one."""
    for start in range(0, len(frames), BATCH):
        some = frames[start : start + BATCH]
        pairs = [read(frame, depth) for frame in some]
        for frame, (rgb, _), depth_u16 in zip(some, pairs, call(engine, pairs), strict=True):
            results.write(frame.name, "", rgb, depth_u16)


def silent_command(words: list[str]) -> None:
    """Run the command without its output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = zoerefine(words)
    assert code == 0, f"the command ended with exit code {code}"


if __name__ == "__main__":
    main()
