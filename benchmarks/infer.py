"""The whole inference command against its engine alone, and against what its files allow.

The engine alone takes the same frames from memory, in the same batches, as many at a time as the
command gives it, or one after the other, whichever is faster. Reading and writing alone
decodes and encodes the same files in as many threads as there are cores, and refines nothing. On
a CPU engine and files share the cores, so together they cannot be faster than one after the other
with both at their best; on a GPU than the slower one. Sides take turns, a pass over all frames
each; medians. The command is run in this process: Python's own start is not counted, loading the
bundle is.
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

from zoerefine.cli import main as zoerefine
from zoerefine.data import habitatdyn
from zoerefine.data.decode import read_zoe
from zoerefine.data.synthetic import synthesize
from zoerefine.export.bundle import Engine, load_bundle
from zoerefine.infer.pipeline import engine_pool
from zoerefine.infer.results import Results
from zoerefine.infer.sources import Shot, open_source
from zoerefine.progress import track

Pair = tuple[np.ndarray, np.ndarray]  # rgb and zoe of a frame
PLATFORM = Path(__file__).resolve().parents[1] / "platform"
BATCH = 4  # the command's own
SHARE = 0.9
CONFIG = """
RUN: {{NAME: bench, ROOT: {root}/runs}}
DATA: {{ROOT: {root}/world, VAL_FRACTION: 0.25, TEST_FRACTION: 0.25}}
CACHE: {{ROOT: {root}/caches}}
LOADER: {{BATCH: 8}}
TRAIN: {{EPOCHS: 1}}
"""


def main() -> None:
    """Print the table, and write it where asked."""
    parser = options(__doc__)
    parser.add_argument("--bundle", type=Path, help="an engine bundle of your own")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory(prefix="infer-") as folder:
        root = Path(folder)
        synthesize(root / "world", 4, 1, 8 if args.quick else 48, 0)
        rows = measure(args.bundle or make_bundle(root), root, 3 if args.quick else 11)
    report(rows, args.json)


def make_bundle(root: Path) -> Path:
    """Train for a moment and export: a bundle's speed does not depend on its weights."""
    (root / "bench.yaml").write_text(CONFIG.format(root=root))
    run = last_line("train", "--config", root / "bench.yaml")
    return Path(last_line("export", run))


def last_line(script: str, *words: object) -> str:
    """Run a script of platform/; where it wrote."""
    command = [sys.executable, PLATFORM / f"{script}.py", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[-1]


def measure(bundle: Path, root: Path, rounds: int) -> list[Row]:
    """Medians of interleaved rounds, in frames/s."""
    rgb, depth, out = root / "world" / habitatdyn.RGB, root / "world" / habitatdyn.ZOE, root / "out"
    engine, shots = load_bundle(bundle), list(open_source(str(rgb)).shots())
    frames = [read(shot, depth) for shot in shots]
    results = Results(out, engine.digest, engine.manifest["commit"])
    words = ["infer", str(bundle), "--rgb", str(rgb), "--depth", str(depth), "--out", str(out)]
    sides: dict[str, Callable[[], object]] = {
        "engine alone, calls side by side": lambda: side_by_side(engine, frames),
        "engine alone, calls in turn": lambda: in_turn(engine, frames),
        "reading and writing alone, all cores": lambda: files_alone(shots, depth, results),
        "one after the other": lambda: one_by_one(engine, shots, depth, results),
        "whole command": lambda: quietly(words),
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
    speed = {name: len(shots) / statistics.median(s) for name, s in seconds.items()}
    return [row(name, value, "frames/s") for name, value in speed.items()] + shares(
        speed, engine.device.type == "cuda"
    )


def shares(speed: dict[str, float], apart: bool) -> list[Row]:
    """The command's speed as shares of the engine's and of the limit.

    Args:
        apart: whether the engine computes on a device of its own.
    """
    engine = max(value for name, value in speed.items() if name.startswith("engine alone"))
    files = speed["reading and writing alone, all cores"]
    limit = min(engine, files) if apart else 1 / (1 / engine + 1 / files)
    whole = speed["whole command"]
    at_limit = whole / limit >= SHARE
    return [
        row("whole command, of one after the other", whole / speed["one after the other"], "x"),
        row("limit of engine and files together", limit, "frames/s"),
        row("whole command, of the engine alone", whole / engine, "x",
            None if at_limit else SHARE),
        row("whole command, of the limit", whole / limit, "x", SHARE),
    ]  # fmt: skip


def read(shot: Shot, depth: Path) -> Pair:
    """Decode a frame's two files."""
    return shot.read(), read_zoe(depth / f"{shot.name}.png")


def side_by_side(engine: Engine, frames: list[Pair]) -> None:
    """Refine frames that are in memory, in the threads that the command uses."""
    with engine_pool(engine) as pool:
        for _ in pool.map(lambda batch: call(engine, batch), batches(frames)):
            pass


def in_turn(engine: Engine, frames: list[Pair]) -> None:
    """Refine frames that are in memory, each call with all cores."""
    for batch in batches(frames):
        call(engine, batch)


def batches(frames: list[Pair]) -> list[list[Pair]]:
    """As the command makes them."""
    return [frames[start : start + BATCH] for start in range(0, len(frames), BATCH)]


def call(engine: Engine, batch: list[Pair]) -> np.ndarray:
    """Refine a batch: uint16 [B, H, W]."""
    rgb, zoe = zip(*batch, strict=True)
    return engine(np.stack(rgb), np.stack(zoe))


def files_alone(shots: list[Shot], depth: Path, results: Results) -> None:
    """Read every frame and write a depth for it: the pseudo depth itself."""

    def both(shot: Shot) -> None:
        rgb, zoe = read(shot, depth)
        results.write(shot.name, "", rgb, zoe)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(both, shots):
            pass


def one_by_one(engine: Engine, shots: list[Shot], depth: Path, results: Results) -> None:
    """What one writes by hand: read, refine, write, the next batch."""
    for start in range(0, len(shots), BATCH):
        some = shots[start : start + BATCH]
        pairs = [read(shot, depth) for shot in some]
        for shot, (rgb, _), depth_u16 in zip(some, pairs, call(engine, pairs), strict=True):
            results.write(shot.name, "", rgb, depth_u16)


def quietly(words: list[str]) -> None:
    """Run the command without its words."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = zoerefine(words)
    assert code == 0, f"the command ended with exit code {code}"


if __name__ == "__main__":
    main()
