"""An engine against the eager refiner on real frames: how accurate it is, and how fast."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.errors import UserError
from zoerefine.exporting.engine_kinds import Forward

# The largest allowed difference from eager fp32: metres at the worst pixel, and mean relative
# depth (AbsRel against eager). bf16's worst pixel is far away, where its 8 significant bits are a
# few centimetres.
TOLERANCES = {
    "fp32": (0.01, 0.0005),
    "fp16": (0.10, 0.002),
    "bf16": (0.30, 0.005),
    "int8": (0.80, 0.02),
}
# The largest size of a low-precision engine: fp32 has 4 bytes a parameter. The constant is for
# what an engine holds besides parameters, which is most of a small one.
BYTES_A_PARAMETER = 3
BYTES_BESIDES_PARAMETERS = 6 * 2**20
WARM_UP, ROUNDS = 3, 15


class OutOfTolerance(UserError):
    """An engine that differs from eager by more than its precision allows."""


@dataclass(frozen=True)
class Accuracy:
    """Differences from eager fp32 on real frames."""

    max_abs_err_m: float
    mean_rel_err: float
    frames: int


def compare_with_eager(
    engine: Forward, eager: Forward, rgb_u8: Tensor, zoe_u16: Tensor, batches: Sequence[int]
) -> Accuracy:
    """Run both on the same frames, uint8 [N, H, W, 3] and uint16 [N, H, W], at every batch size.

    Raises `UserError` if the engine fails at one of them.
    """
    with torch.inference_mode():
        expected_m = eager(rgb_u8, zoe_u16).float() * ZOE_UNIT_M
        found = []
        for batch in batches:
            picked = torch.arange(max(batch, len(rgb_u8)), device=rgb_u8.device) % len(rgb_u8)
            for part in picked.split(batch):
                rgb, zoe = rgb_u8[part], _rows(zoe_u16, part)
                try:
                    refined_m = engine(rgb, zoe).float() * ZOE_UNIT_M
                except RuntimeError as error:
                    raise UserError(
                        f"the engine does not run at batch {len(part)}: {_last_line(error)}: "
                        "not published"
                    ) from None
                error_m = (refined_m - expected_m[part]).abs()
                relative = error_m / expected_m[part].clamp(min=0.05)
                found.append((error_m.max().item(), relative.mean().item()))
    worst, mean = np.array(found).max(0)
    return Accuracy(float(worst), float(mean), len(rgb_u8))


def check_tolerance(accuracy: Accuracy, kind: str, precision: str) -> None:
    """Raises `OutOfTolerance` if an engine differs too much from the eager refiner."""
    worst, mean = TOLERANCES[precision]
    if accuracy.max_abs_err_m > worst or accuracy.mean_rel_err > mean:
        raise OutOfTolerance(
            f"{kind} in {precision} differs from the refiner by {accuracy.max_abs_err_m:.3f} m at "
            f"the worst pixel (allowed {worst}) and {accuracy.mean_rel_err:.2%} on average "
            f"(allowed {mean:.2%}): not published"
        )


def check_size(kind: str, precision: str, size: int, parameters: int) -> None:
    """Raises `UserError` if an engine of `size` bytes is so large that its weights are fp32.

    Builders that ignore the requested precision do so silently; only the size shows it.
    """
    if precision == "fp32":
        return
    allowed = BYTES_A_PARAMETER * parameters + BYTES_BESIDES_PARAMETERS
    if size > allowed:
        raise UserError(
            f"{kind} was asked for {precision} and silently built fp32: {size / 1e6:.0f} MB for "
            f"{parameters / 1e6:.1f} million parameters: not published; use --precision fp32"
        )


def time_interleaved(
    engines: Mapping[str, Forward], rgb_u8: Tensor, zoe_u16: Tensor
) -> dict[str, float]:
    """Median milliseconds of a call of each engine.

    Engines take turns in every round, so that other work on the machine disturbs all alike. The
    frames are on the engines' device.
    """
    samples: dict[str, list[float]] = {name: [] for name in engines}
    with torch.inference_mode():
        for _ in range(WARM_UP):  # TorchScript optimizes in its first calls
            for forward in engines.values():
                forward(rgb_u8, zoe_u16)
        for _ in range(ROUNDS):
            for name, forward in engines.items():
                samples[name].append(time_call(forward, rgb_u8, zoe_u16))
    return {name: float(np.median(values)) for name, values in samples.items()}


def time_call(forward: Forward, rgb_u8: Tensor, zoe_u16: Tensor) -> float:
    """Milliseconds of one call, until the device has finished."""
    start = time.perf_counter()
    forward(rgb_u8, zoe_u16)
    if rgb_u8.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """Rows of a uint16 tensor, which torch cannot index on every device."""
    return values.view(torch.int16)[rows].view(torch.uint16)


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
