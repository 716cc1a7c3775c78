"""An engine against the eager refiner on real frames: how far off, and how much faster."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.errors import UserError
from zoerefine.export.module import ZOE_UNITS

Run = Callable[[Tensor, Tensor], Tensor]

# What an engine may differ from eager fp32, in metres at the worst pixel and in mean relative
# depth. The worst pixel in bf16 is far away, where its eight bits are a few centimetres.
TOLERANCES = {"fp32": (0.01, 0.0005), "bf16": (0.30, 0.005), "fp16": (0.10, 0.002)}
ROUNDS = 15


@dataclass(frozen=True)
class Accuracy:
    """Differences from eager fp32 on real frames."""

    max_abs_err_m: float
    mean_rel_err: float
    frames: int


@dataclass(frozen=True)
class Latency:
    """Medians of interleaved rounds at batch 1, milliseconds a frame, pictures in to depth out."""

    latency_ms: float
    eager_ms: float
    height: int
    width: int


def compare(engine: Run, eager: Run, rgb_u8: Tensor, zoe_u16: Tensor) -> Accuracy:
    """Run both on the same frames: uint8 [B, H, W, 3] and uint16 [B, H, W]."""
    with torch.inference_mode():
        ours, theirs = (run(rgb_u8, zoe_u16).float() / ZOE_UNITS for run in (engine, eager))
    error = (ours - theirs).abs()
    relative = error / theirs.clamp(min=0.05)
    return Accuracy(error.max().item(), relative.mean().item(), len(rgb_u8))


def within_tolerance(accuracy: Accuracy, precision: str) -> bool:
    """Whether an engine may be shipped."""
    worst, mean = TOLERANCES[precision]
    return accuracy.max_abs_err_m <= worst and accuracy.mean_rel_err <= mean


def check_tolerance(accuracy: Accuracy, precision: str) -> None:
    """Raises `UserError` where an engine is too far from the refiner that it stands for."""
    if not within_tolerance(accuracy, precision):
        worst, mean = TOLERANCES[precision]
        raise UserError(
            f"the {precision} engine is {accuracy.max_abs_err_m:.3f} m off at the worst pixel "
            f"(allowed {worst}) and {accuracy.mean_rel_err:.2%} on average (allowed {mean:.2%}): "
            "not published; export with another precision"
        )


def time_both(engine: Run, eager: Run, rgb_u8: Tensor, zoe_u16: Tensor) -> Latency:
    """Time single frames, the two sides in turn, so that a noisy machine disturbs both alike."""
    frame = rgb_u8[:1], zoe_u16[:1]
    samples: dict[str, list[float]] = {"engine": [], "eager": []}
    sides = {"engine": engine, "eager": eager}
    with torch.inference_mode():
        for _ in range(3):  # TorchScript optimises in its first calls
            for run in sides.values():
                run(*frame)
        for _ in range(ROUNDS):
            for name, run in sides.items():
                samples[name].append(timed(run, frame))
    ours, theirs = (float(np.median(samples[name])) for name in ("engine", "eager"))
    return Latency(ours, theirs, rgb_u8.shape[1], rgb_u8.shape[2])


def timed(run: Run, frame: Sequence[Tensor]) -> float:
    """Milliseconds of one call, to the end of its work on the device."""
    start = time.perf_counter()
    run(*frame)
    if frame[0].is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def as_rows(accuracy: Accuracy, latency: Latency) -> dict[str, Any]:
    """Both for the manifest."""
    return asdict(accuracy) | asdict(latency)
