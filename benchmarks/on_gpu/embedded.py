"""TensorRT engines inside TorchScript files: built, compared, loaded afresh, damaged, timed.

Where Torch-TensorRT is not here, one row says so.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from common.refiner import wild_refiner
from common.report import Row, row
from common.timing import in_turns
from engines import EAGER, call, eager, pictures
from rows import failure

from zoerefine.errors import UserError
from zoerefine.export.bundle import load_bundle, save_bundle
from zoerefine.export.engine_kinds import ExportSource, Run, kind_of
from zoerefine.export.precision import Inputs
from zoerefine.export.verify import check_tolerance, compare

AGAINST_EAGER = 4.0
HEIGHT, WIDTH = 192, 256


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """Every precision; a failed one is a row."""
    kind = kind_of("tensorrt")
    if kind.lacking():
        yield {**row("TensorRT", 0.0, ""), "note": f"not here: {kind.lacking()}"}
        return
    source = ExportSource(wild_refiner("unet"), HEIGHT, WIDTH, noise)
    for precision in kind.precisions():
        try:
            yield from one(source, precision, folder / f"{precision}.ts")
        except Exception as error:
            yield failure(f"TensorRT {precision}", error)


def noise() -> Iterator[Inputs]:
    """Batches to calibrate 8-bit rounding with, of the kind that is measured."""
    for _ in range(8):
        rgb01 = torch.rand(1, 3, HEIGHT, WIDTH)
        yield rgb01, torch.rand(1, 1, HEIGHT, WIDTH) * 7 + 0.4


def one(source: ExportSource, precision: str, path: Path) -> Iterator[Row]:
    """The rows of one precision."""
    label = f"TensorRT {precision}"
    kind = kind_of("tensorrt")
    built = kind.build(source, precision)
    made = {"engine": kind.NAME, "precision": precision, "torch": torch.__version__, "run": ""}
    save_bundle(built, made, path)
    engine = load_bundle(path)
    reference = eager(source, "fp32")
    frames = pictures(source, 4)
    accuracy = compare(engine.run, reference, *frames, built.batches)
    yield row(f"{label}: worst difference from eager", accuracy.max_abs_err_m, "m")
    yield row(f"{label}: mean difference from eager", 100 * accuracy.mean_rel_err, "%")
    check_tolerance(accuracy, kind.NAME, precision)
    yield row(f"{label}: file", path.stat().st_size / 1e6, "MB")
    yield from times(source, engine.run, reference, label)
    yield row(f"{label}: loads and runs in a fresh process", float(fresh(path)), "", 1.0)
    yield row(f"{label}: refused when damaged", float(refused(path)), "", 1.0)


def times(source: ExportSource, run: Run, reference: Run, label: str) -> Iterator[Row]:
    """Latency against eager, alone and in a batch."""
    for batch in (1, 16):
        frames = pictures(source, batch)
        with torch.inference_mode():
            found = in_turns({label: call(run, frames), EAGER: call(reference, frames)}, 3)
        where = f"{HEIGHT}x{WIDTH} batch {batch} {label}"
        yield row(f"{where}: p50", float(np.median(found[label])), "ms")
        yield row(f"{where}: p99", float(np.percentile(found[label], 99)), "ms")
        share = float(np.median(found[EAGER] / found[label]))
        yield row(f"{where}: against eager fp32", share, "x", AGAINST_EAGER)


def fresh(path: Path) -> bool:
    """Whether another process can load the file and run it."""
    program = Path(__file__).parents[1] / "common" / "first_answer.py"
    words = [sys.executable, "-W", "ignore", str(program), str(path), str(HEIGHT), str(WIDTH)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    return done.returncode == 0


def refused(path: Path) -> bool:
    """Whether a changed byte in the middle of the file is noticed."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    try:
        load_bundle(path)
    except UserError:
        return True
    return False
