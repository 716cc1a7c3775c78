"""TensorRT engines in TorchScript files and packages: built, compared, timed, loaded elsewhere.

If Torch-TensorRT is not installed, one row says so.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from common.refiner import minimal_manifest, random_refiner
from common.report import Row, row
from common.timing import in_turns
from engines import EAGER, call, eager, pictures
from graphs import compared
from rows import failure

from zoerefine.base.errors import UserError
from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import EngineKind, Forward, engine_kind
from zoerefine.depth.exporting.precision import RefinerInputs
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.exporting.verify import check_tolerance, compare_with_eager

AGAINST_EAGER = 4.0
HEIGHT, WIDTH = 192, 256
PACKED = "tensorrt-pt2"


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """Every precision. One that fails gives a row with the reason."""
    kind = engine_kind("tensorrt")
    if kind.missing_requirement():
        yield {**row("TensorRT", 0.0, ""), "note": f"not measured: {kind.missing_requirement()}"}
        return
    source = ExportSource(random_refiner("unet", confidence=True), HEIGHT, WIDTH, noise)
    names = [("TensorRT", kind, precision) for precision in kind.precisions()]
    for title, one_kind, precision in [*names, ("TensorRT .pt2", engine_kind(PACKED), "fp16")]:
        label = f"{title} {precision}"
        try:
            yield from one(source, one_kind, precision, folder / label.replace(" ", "-"), label)
        except Exception as error:
            yield failure(label, error)


def noise() -> Iterator[RefinerInputs]:
    """Batches to calibrate int8 with, of the same kind as the measured ones."""
    for _ in range(8):
        rgb01 = torch.rand(1, 3, HEIGHT, WIDTH)
        yield rgb01, torch.rand(1, 1, HEIGHT, WIDTH) * 7 + 0.4


def one(
    source: ExportSource, kind: EngineKind, precision: str, path: Path, label: str
) -> Iterator[Row]:
    """The rows of one engine."""
    built = kind.build(source, precision)
    save_bundle(built, minimal_manifest(kind.NAME, precision), path)
    engine = load_bundle(path)
    reference = eager(source, "fp32")
    frames = pictures(source, 4)
    accuracy = compare_with_eager(engine.forward, reference, *frames, built.batches)
    yield row(f"{label}: worst difference from eager", accuracy.max_abs_err_m, "m")
    yield row(f"{label}: mean difference from eager", 100 * accuracy.mean_rel_err, "%")
    check_tolerance(accuracy, kind.NAME, precision)
    yield row(f"{label}: file", path.stat().st_size / 1e6, "MB")
    yield from times(source, engine.forward, reference, label)
    yield from compared(path, label, [(HEIGHT, WIDTH), (480, 640)], small=False)
    yield row(
        f"{label}: loads and runs in a new process", float(runs_in_new_process(path)), "", 1.0
    )
    yield row(f"{label}: refused when damaged", float(refused(path)), "", 1.0)


def times(source: ExportSource, forward: Forward, reference: Forward, label: str) -> Iterator[Row]:
    """Latency against eager, of one frame and of a batch."""
    for batch in (1, 16):
        frames = pictures(source, batch)
        with torch.inference_mode():
            found = in_turns({label: call(forward, frames), EAGER: call(reference, frames)}, 3)
        where = f"{HEIGHT}x{WIDTH} batch {batch} {label}"
        yield row(f"{where}: p50", float(np.median(found[label])), "ms")
        yield row(f"{where}: p99", float(np.percentile(found[label], 99)), "ms")
        share = float(np.median(found[EAGER] / found[label]))
        yield row(f"{where}: against eager fp32", share, "x", AGAINST_EAGER)


def runs_in_new_process(path: Path) -> bool:
    """Whether a new process can load the file and run it."""
    program = Path(__file__).parents[1] / "common" / "first_answer.py"
    words = [sys.executable, "-W", "ignore", str(program), str(path), str(HEIGHT), str(WIDTH)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    return done.returncode == 0


def refused(path: Path) -> bool:
    """Whether a file with one changed byte is refused."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    try:
        load_bundle(path)
    except UserError:
        return True
    return False
