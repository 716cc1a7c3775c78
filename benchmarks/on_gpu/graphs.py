"""A bundle's calls as CUDA graphs against the same calls without: bits, latency, time to queue."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.report import Row, row
from common.timing import in_turns
from torch import Tensor

from zoerefine.base.machine.device import pick_device
from zoerefine.depth.exporting.bundle.bundle import load_bundle
from zoerefine.depth.exporting.engine_kinds import Forward

CALLS, CALLS_SMALL = 50, 3
NEW_FRAMES = 6  # the third call of a size captures, and each has another content
WITH, WITHOUT = "with a CUDA graph", "without"


def compared(
    path: Path, label: str, sizes: Sequence[tuple[int, int]], small: bool
) -> Iterator[Row]:
    """The rows of one bundle, for one picture of each size."""
    if not torch.cuda.is_available():
        raise RuntimeError("CUDA graphs need a GPU")
    sides = {WITH: load_bundle(path).outputs, WITHOUT: load_bundle(path, cuda_graphs=False).outputs}
    for size in sizes:
        name, frames = f"{size[0]}x{size[1]} {label}", pictures(size)
        yield row(f"{name}: the same bits {WITH}", float(same_bits(sides, size)), "", 1.0)
        runs = {side: partial(forward, *frames) for side, forward in sides.items()}
        times = in_turns(runs, 0.2 if small else 2)
        for side, ms in times.items():
            yield row(f"{name} {side}: p50", float(np.median(ms)), "ms")
            yield row(f"{name} {side}: p99", float(np.percentile(ms, 99)), "ms")
            yield row(f"{name} {side}: time to queue a call", queueing_ms(runs[side], small), "ms")
        share = float(np.median(times[WITHOUT] / times[WITH]))
        yield row(f"{name} {WITH}: against {WITHOUT}", share, "x", 1.0)


def same_bits(sides: Mapping[str, Forward], size: tuple[int, int]) -> bool:
    """Whether both sides' outputs are equal for several frames."""
    found = []
    for _ in range(NEW_FRAMES):
        frames = pictures(size)
        pairs = zip(sides[WITH](*frames), sides[WITHOUT](*frames), strict=True)
        found += [torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in pairs]
    return all(found)


def pictures(size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """One random frame on the device: uint8 [1, H, W, 3] and uint16 [1, H, W]."""
    rgb = torch.randint(0, 256, (1, *size, 3), dtype=torch.uint8)
    zoe = torch.randint(100, 2000, (1, *size)).to(torch.uint16)
    return rgb.to(pick_device()), zoe.to(pick_device())


def queueing_ms(run: Callable[[], Any], small: bool) -> float:
    """Milliseconds of the CPU for a call, without waiting for a GPU at the end."""
    calls = CALLS_SMALL if small else CALLS
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) * 1e3 / calls
