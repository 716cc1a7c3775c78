"""What every bundle must hold on real frames: agreement, threads, and memory."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from common.report import Row, row
from torch import Tensor

from zoerefine.depth.exporting.engine import Engine
from zoerefine.depth.exporting.shipped_module import ShippedModule
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.exporting.verify import TOLERANCES, compare_with_eager

BATCHES = (1, 2, 16)
CALLS, QUICK_CALLS, WARM_UP = 1000, 100, 50
GROWTH_MB = 8.0  # a leak of the pictures alone is more than 100 MB in 1,000 calls


def agreement_rows(
    label: str,
    engine: Engine,
    source: ExportSource,
    frames: tuple[Tensor, Tensor],
    quick: bool,
) -> list[Row]:
    """Rows of one bundle on frames uint8 [N, H, W, 3] and uint16 [N, H, W]."""
    height, width = source.height, source.width
    core = source.core("fp32")
    eager = ShippedModule(core, height, width, source.has_confidence).eval()
    worst, mean = TOLERANCES[engine.manifest["precision"]]
    rows = []
    for rgb, zoe in three_sizes(*frames, height, width):
        found = compare_with_eager(engine.outputs, eager, rgb, zoe, BATCHES)
        size = f"{label} {zoe.shape[1]}x{zoe.shape[2]}"
        rows += [
            row(f"{size}: worst difference from eager", found.max_abs_err_m, "m", at_most=worst),
            row(f"{size}: mean difference", found.mean_rel_err, "relative", at_most=mean),
        ]
    calls = QUICK_CALLS if quick else CALLS
    return [
        *rows,
        row(f"{label}: calls of two threads with the bits of one", same_bits(engine, frames),
            "share", at_least=1),
        row(f"{label}: growth of memory in {calls} calls", growth_mb(engine, frames, calls), "MB",
            at_most=GROWTH_MB),
    ]  # fmt: skip


def three_sizes(
    rgb_u8: Tensor, zoe_u16: Tensor, height: int, width: int
) -> list[tuple[Tensor, Tensor]]:
    """The whole frames, parts of the engine's size (or as much as there is), and odd parts."""
    sizes = [tuple(zoe_u16.shape[1:]), (height, width), (151, 203)]
    return [
        (rgb_u8[:, :rows, :columns].contiguous(), zoe_u16[:, :rows, :columns].contiguous())
        for rows, columns in sizes
    ]


def same_bits(engine: Engine, frames: tuple[Tensor, Tensor]) -> float:
    """The share of calls in two threads whose result is that of a call alone."""
    pairs = list(zip(*(tensor.split(1) for tensor in frames), strict=True))
    alone = [engine.outputs(*pair)[0] for pair in pairs]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda pair: engine.outputs(*pair)[0], pairs * 3))
    same = [torch.equal(a, b) for a, b in zip(together, alone * 3, strict=True)]
    return sum(same) / len(same)


def growth_mb(engine: Engine, frames: tuple[Tensor, Tensor], calls: int) -> float:
    """Resident memory after some calls, less that after the warm-up."""
    pairs = list(zip(*(tensor.split(1) for tensor in frames), strict=True))
    for number in range(WARM_UP):
        engine.outputs(*pairs[number % len(pairs)])
    before = resident_mb()
    for number in range(calls):
        engine.outputs(*pairs[number % len(pairs)])
    return resident_mb() - before


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
