"""What a robot's program pays for a frame: `Refiner` called in five ways at two picture sizes."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.refiner import minimal_manifest, no_calibration, random_refiner
from common.report import Row, row
from common.timing import in_turns
from graphs import compared, queueing_ms
from rows import each, failure

from zoerefine.base.machine.device import pick_device
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.infer.refiner import Refiner


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """One bundle of 192x256, pictures of that size and of 480x640."""
    own, precision = ((48, 64), "fp32") if small else ((192, 256), "fp16")
    source = ExportSource(
        random_refiner("small" if small else "unet", confidence=True), *own, no_calibration
    )
    kind, path = engine_kind("torchscript"), folder / "calls.ts"
    save_bundle(kind.build(source, precision), minimal_manifest(kind.NAME, precision), path)
    engine = load_bundle(path)
    sizes = own, (60, 80) if small else (480, 640)
    for size in sizes:
        yield from of_size(Refiner(engine), size, f"{size[0]}x{size[1]} Refiner, ", small)
    try:
        yield from compared(path, f"torchscript {precision}", sizes, small)
    except Exception as error:
        yield failure("calls as CUDA graphs", error)


def of_size(refiner: Refiner, size: tuple[int, int], label: str, small: bool) -> Iterator[Row]:
    """Latency of each form of input, and the time to queue a call."""
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (*size, 3), np.uint8)
    zoe = rng.integers(300, 2000, size, np.uint16)
    rows: list[Row] = []
    forms = each(input_forms(refiner, rgb, zoe), rows, label)
    yield from rows
    for name, ms in in_turns(forms, 0.2 if small else 5).items():
        yield row(f"{label}{name}: p50", float(np.median(ms)), "ms")
        yield row(f"{label}{name}: p99", float(np.percentile(ms, 99)), "ms")
        yield row(f"{label}{name}: time to queue a call", queueing_ms(forms[name], small), "ms")


def input_forms(
    refiner: Refiner, rgb: np.ndarray, zoe: np.ndarray
) -> dict[str, Callable[[], Callable[[], Any]]]:
    """Makes a call with each form of one frame, by name."""
    zoe_m = (zoe * ZOE_UNIT_M).astype(np.float32)

    def on_arrays(*frame: Any) -> Callable[[], Any]:
        return lambda: refiner(*frame)

    def on_tensors(*frame: Any) -> Callable[[], Any]:
        return on_arrays(*(torch.from_numpy(one).to(pick_device()) for one in frame))

    def on_cupy() -> Callable[[], Any]:
        cupy = import_module("cupy")
        return on_arrays(cupy.asarray(rgb), cupy.asarray(zoe_m))

    return {
        "NumPy, uint16": lambda: on_arrays(rgb, zoe),
        "NumPy, float32": lambda: on_arrays(rgb, zoe_m),
        "tensors, uint16": lambda: on_tensors(rgb, zoe),
        "tensors, float32": lambda: on_tensors(rgb, zoe_m),
        "CuPy, float32": on_cupy,
    }
