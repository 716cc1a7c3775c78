"""An engine against the eager refiner on real frames: how far off, and how much faster."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.errors import UserError
from zoerefine.export.engine_kinds import Run

# What an engine may differ from eager fp32, in metres at the worst pixel and in mean relative
# depth (AbsRel against eager). The worst pixel in bf16 is far away, where its eight bits are a few
# centimetres.
TOLERANCES = {
    "fp32": (0.01, 0.0005),
    "fp16": (0.10, 0.002),
    "bf16": (0.30, 0.005),
    "int8": (0.80, 0.02),
}
# What a low-precision engine may weigh: less than three quarters of fp32's four bytes a parameter.
# Engines of small networks are mostly something else.
BYTES_A_PARAMETER = 3
BESIDES_PARAMETERS = 4 * 2**20
ROUNDS = 15


class TooFarOff(UserError):
    """An engine that differs from eager by more than its precision's tolerance."""


@dataclass(frozen=True)
class Accuracy:
    """Differences from eager fp32 on real frames."""

    max_abs_err_m: float
    mean_rel_err: float
    frames: int


def compare(
    engine: Run, eager: Run, rgb_u8: Tensor, zoe_u16: Tensor, batches: Sequence[int]
) -> Accuracy:
    """Run both on the same frames, uint8 [N, H, W, 3] and uint16 [N, H, W], at every batch size.

    Raises `UserError` where the engine does not run at one of them.
    """
    with torch.inference_mode():
        theirs = eager(rgb_u8, zoe_u16).float() * ZOE_UNIT_M
        found = []
        for batch in batches:
            picked = torch.arange(max(batch, len(rgb_u8)), device=rgb_u8.device) % len(rgb_u8)
            for part in picked.split(batch):
                rgb, zoe = rgb_u8[part], _rows(zoe_u16, part)
                try:
                    ours = engine(rgb, zoe).float() * ZOE_UNIT_M
                except RuntimeError as error:
                    raise UserError(
                        f"the engine does not run at batch {len(part)}: {_last_line(error)}: "
                        "not published"
                    ) from None
                error_m = (ours - theirs[part]).abs()
                relative = error_m / theirs[part].clamp(min=0.05)
                found.append((error_m.max().item(), relative.mean().item()))
    worst, mean = np.array(found).max(0)
    return Accuracy(float(worst), float(mean), len(rgb_u8))


def check_tolerance(accuracy: Accuracy, kind: str, precision: str) -> None:
    """Raises `TooFarOff` where an engine is too far from the refiner that it stands for."""
    worst, mean = TOLERANCES[precision]
    if accuracy.max_abs_err_m > worst or accuracy.mean_rel_err > mean:
        raise TooFarOff(
            f"{kind} in {precision} is {accuracy.max_abs_err_m:.3f} m off at the worst pixel "
            f"(allowed {worst}) and {accuracy.mean_rel_err:.2%} on average (allowed {mean:.2%}): "
            "not published"
        )


def check_size(kind: str, precision: str, size: int, parameters: int) -> None:
    """Raises `UserError` where an engine of `size` bytes must hold its weights as fp32.

    Builders that do not follow an asked precision say nothing of it; their engines' size does.
    """
    if precision == "fp32":
        return
    allowed = BYTES_A_PARAMETER * parameters + BESIDES_PARAMETERS
    if size > allowed:
        raise UserError(
            f"{kind} was asked for {precision} and built fp32 without a word: {size / 1e6:.0f} MB "
            f"for {parameters / 1e6:.1f} million parameters: not published; give --precision fp32"
        )


def time_all(runs: Mapping[str, Run], rgb_u8: Tensor, zoe_u16: Tensor) -> dict[str, float]:
    """Milliseconds a call of each, medians of rounds in which all take turns, so that a noisy
    machine disturbs all alike. Frames lie where each run wants them already: see `timed`."""
    samples: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for _ in range(3):  # TorchScript optimises in its first calls
            for run in runs.values():
                run(rgb_u8, zoe_u16)
        for _ in range(ROUNDS):
            for name, run in runs.items():
                samples[name].append(timed(run, rgb_u8, zoe_u16))
    return {name: float(np.median(values)) for name, values in samples.items()}


def timed(run: Run, rgb_u8: Tensor, zoe_u16: Tensor) -> float:
    """Milliseconds of one call, to the end of its work on the device."""
    start = time.perf_counter()
    run(rgb_u8, zoe_u16)
    if rgb_u8.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """Rows of a uint16 tensor, which torch does not index on every device."""
    return values.view(torch.int16)[rows].view(torch.uint16)


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
