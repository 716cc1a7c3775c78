"""What a robot's program pays for a frame: `Refiner` called in five ways at two picture sizes."""

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.refiner import minimal_manifest, no_calibration, random_refiner
from common.report import Row, row
from common.timing import in_turns
from engines import call, cuda_graph
from rows import each

from zoerefine.base.machine.device import pick_device
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import engine_kind
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.infer.refiner import Refiner

QUEUED, QUEUED_SMALL = 50, 3  # calls in a row


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """One bundle of 192x256, pictures of that size and of 480x640."""
    own, precision = ((48, 64), "fp32") if small else ((192, 256), "fp16")
    source = ExportSource(
        random_refiner("small" if small else "unet", confidence=True), *own, no_calibration
    )
    kind, path = engine_kind("torchscript"), folder / "calls.ts"
    save_bundle(kind.build(source, precision), minimal_manifest(kind.NAME, precision), path)
    engine = load_bundle(path)
    for size in (own, (60, 80) if small else (480, 640)):
        yield from of_size(Refiner(engine), size, f"{size[0]}x{size[1]} Refiner, ", small)


def of_size(refiner: Refiner, size: tuple[int, int], label: str, small: bool) -> Iterator[Row]:
    """Latency of each form of input, the time to queue a call, and the call as a CUDA graph."""
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (*size, 3), np.uint8)
    zoe = rng.integers(300, 2000, size, np.uint16)
    rows: list[Row] = []
    forms = each(input_forms(refiner, rgb, zoe), rows, label)
    yield from rows
    calls = QUEUED_SMALL if small else QUEUED
    for name, ms in in_turns(forms, 0.2 if small else 5).items():
        yield row(f"{label}{name}: p50", float(np.median(ms)), "ms")
        yield row(f"{label}{name}: p99", float(np.percentile(ms, 99)), "ms")
        yield row(f"{label}{name}: time to queue a call", queueing_ms(forms[name], calls), "ms")
    yield from as_graph(refiner, rgb, zoe, label)


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


def queueing_ms(run: Callable[[], Any], calls: int) -> float:
    """Milliseconds of the CPU for a call, without waiting for a GPU at the end."""
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) * 1e3 / calls


def as_graph(refiner: Refiner, rgb: np.ndarray, zoe: np.ndarray, label: str) -> Iterator[Row]:
    """The bundle's call as one CUDA graph: its time, and whether the outputs have the same bits."""
    frames = tuple(torch.from_numpy(one[None]).to(pick_device()) for one in (rgb, zoe))
    forward, name = refiner.engine.forward, f"{label}CUDA graph of the bundle"
    rows: list[Row] = []
    with torch.inference_mode():
        graphs = each({name: lambda: cuda_graph(forward, frames)}, rows)  # type: ignore[arg-type]
        yield from rows
        for graph in graphs.values():
            pairs = zip(graph(*frames), forward(*frames), strict=True)
            same = all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in pairs)
            yield row(f"{name}: the same bits", float(same), "", 1.0)
            ms = in_turns({name: call(graph, frames)}, 2)[name]  # type: ignore[arg-type]
            yield row(f"{name}: p50", float(np.median(ms)), "ms")
