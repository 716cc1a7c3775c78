"""The refiner's forward pass in every way but TensorRT, pictures and depth both on the GPU."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.refiner import minimal_manifest, no_calibration, random_refiner
from common.report import Row, row
from common.timing import in_turns
from graphs import compared
from rows import each
from torch import Tensor

from zoerefine.base.machine.device import pick_device
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting.bundle.bundle import load_bundle, save_bundle
from zoerefine.depth.exporting.engine_kinds import Forward, engine_kind
from zoerefine.depth.exporting.precision import to_precision
from zoerefine.depth.exporting.shipped_module import core_of
from zoerefine.depth.exporting.source import ExportSource

EAGER, COMPILED = "eager fp32", "torch.compile fp16"
AGAINST_EAGER, AGAINST_COMPILE = 4.0, 1.5


def measure(folder: Path, small: bool) -> Iterator[Row]:
    """The rows of every size and batch."""
    sizes = [(48, 64)] if small else [(192, 256), (480, 640)]
    refiner = random_refiner("small" if small else "unet", confidence=True)
    for batch in (1,) if small else (1, 16):
        for size in sizes:
            source = ExportSource(refiner, *size, no_calibration)
            # Compiling takes half a minute.
            compiled = batch == 1 and size == sizes[0] and not small
            with torch.inference_mode():
                yield from setting(source, batch, folder, compiled, 0.2 if small else 4)
    source = ExportSource(refiner, *sizes[0], no_calibration)
    yield from aoti(source, "fp32" if small else "fp16", folder)


def aoti(source: ExportSource, precision: str, folder: Path) -> Iterator[Row]:
    """The engine that is compiled ahead of time, after all others: its build may take a minute."""
    label, kind = f"aoti {precision}", engine_kind("aoti")
    if kind.missing_requirement() or not torch.cuda.is_available():
        reason = kind.missing_requirement() or "only on a GPU"
        yield {**row(label, 0.0, ""), "note": f"not measured: {reason}"}
        return
    rows: list[Row] = []
    frames = pictures(source, 1)
    built = each({label: lambda: shipped(source, "aoti", precision, folder)}, rows)
    yield from rows
    for name, forward in built.items():
        with torch.inference_mode():
            ms = in_turns({name: call(forward, frames)}, 2)[name]
        yield row(f"{source.height}x{source.width} batch 1 {name}: p50", float(np.median(ms)), "ms")
        yield from compared(path_of(source, "aoti", precision, folder), name,
                            [(source.height, source.width), (480, 640)], small=False)  # fmt: skip


def setting(
    source: ExportSource, batch: int, folder: Path, compiled: bool, seconds: float
) -> list[Row]:
    """The rows of one size and batch."""
    rows: list[Row] = []
    label = f"{source.height}x{source.width} batch {batch} "
    frames = pictures(source, batch)
    built: dict[str, Forward] = each(builders(source, frames, folder, compiled), rows, label)
    sides = {name: one for name, one in built.items() if works(one, frames, label + name, rows)}
    times = in_turns({name: call(forward, frames) for name, forward in sides.items()}, seconds)
    half = {name: float(np.median(ms)) for name, ms in times.items()}
    expected_m = sides[EAGER](*frames)[0].float() * ZOE_UNIT_M
    for name, forward in sides.items():
        error_m = (forward(*frames)[0].float() * ZOE_UNIT_M - expected_m).abs().max().item()
        rows += [
            row(f"{label}{name}: p50", half[name], "ms"),
            row(f"{label}{name}: p99", float(np.percentile(times[name], 99)), "ms"),
            row(f"{label}{name}: throughput", 1000 * batch / half[name], "images/s"),
            row(f"{label}{name}: worst difference from eager", error_m, "m"),
        ]
    shipped = [name for name in half if name.startswith("torchscript")]
    if shipped:
        best = min(shipped, key=half.__getitem__)
        for other, goal in ((EAGER, AGAINST_EAGER), (COMPILED, AGAINST_COMPILE)):
            if other in half:
                share = float(np.median(times[other] / times[best]))
                rows.append(row(f"{label}{best}: against {other}", share, "x", goal))
    return rows


def pictures(source: ExportSource, batch: int) -> tuple[Tensor, Tensor]:
    """uint8 [B, H, W, 3] and uint16 [B, H, W], on the device."""
    size = batch, source.height, source.width
    rgb = torch.randint(0, 256, (*size, 3), dtype=torch.uint8)
    zoe = torch.randint(100, 2000, size).to(torch.uint16)
    return rgb.to(pick_device()), zoe.to(pick_device())


def call(forward: Forward, frames: tuple[Tensor, Tensor]) -> Callable[[], Any]:
    """The forward function with its inputs."""
    return lambda: forward(*frames)


def works(forward: Forward, frames: tuple[Tensor, Tensor], label: str, rows: list[Row]) -> bool:
    """Whether two calls succeed. Compilers fail in the first call, TorchScript's in the second."""
    return bool(each({label: lambda: (forward(*frames), forward(*frames))}, rows))


def builders(
    source: ExportSource, frames: tuple[Tensor, Tensor], folder: Path, compiled: bool
) -> dict[str, Callable[[], Forward]]:
    """A function that builds each side, by name."""
    found: dict[str, Callable[[], Forward]] = {EAGER: lambda: eager(source, "fp32")}
    for precision in ("fp16", "bf16"):
        found[f"eager {precision}"] = lambda p=precision: eager(source, p)
        found[f"torchscript {precision}"] = lambda p=precision: shipped(
            source, "torchscript", p, folder
        )
    found["torchscript fp32"] = lambda: shipped(source, "torchscript", "fp32", folder)
    if compiled:
        found[COMPILED] = lambda: eager(source, "fp16", compiled=True)
    for precision in ("fp32", "fp16"):
        found[f"CUDA graph of eager {precision}"] = lambda p=precision: cuda_graph(
            eager(source, p), frames
        )
    return found


def eager(source: ExportSource, precision: str, compiled: bool = False) -> Forward:
    """In PyTorch; in low precision with channels last."""
    core = core_of(to_precision(source.refiner, precision, no_calibration)).to(pick_device())
    if precision != "fp32":
        core.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inner = torch.compile(core, dynamic=False) if compiled else core
    forward: Forward = source.shipped(inner).eval().to(pick_device())  # type: ignore[arg-type]
    return forward


def shipped(source: ExportSource, engine: str, precision: str, folder: Path) -> Forward:
    """An engine of this kind, loaded from its file."""
    kind = engine_kind(engine)
    path = path_of(source, engine, precision, folder)
    save_bundle(kind.build(source, precision), minimal_manifest(kind.NAME, precision), path)
    return load_bundle(path).forward


def path_of(source: ExportSource, engine: str, precision: str, folder: Path) -> Path:
    """Where `shipped` writes an engine's file."""
    return folder / f"{precision}-{source.height}.{engine}"


def cuda_graph(forward: Forward, frames: tuple[Tensor, Tensor]) -> Forward:
    """A CUDA graph of a forward pass on these inputs."""
    if not torch.cuda.is_available():
        raise RuntimeError("CUDA graphs need a GPU")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            forward(*frames)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = forward(*frames)

    def replay(rgb_u8: Tensor, zoe_u16: Tensor, alive: Forward = forward) -> list[Tensor]:
        graph.replay()  # it reads the network's weights, which `alive` keeps in memory
        return output

    return replay
