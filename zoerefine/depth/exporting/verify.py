"""An engine against the eager refiner on real frames: how accurate it is, and how fast."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.base.depth_limits import FARTHEST_M
from zoerefine.base.errors import UserError
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting import SPREAD_UNITS
from zoerefine.depth.exporting.engine_kinds import Forward, last_line

# The largest allowed difference from eager fp32: metres at the worst pixel indoors, and mean
# relative depth (AbsRel against eager). The second is also for the mean difference of spread,
# which is a relative depth, too. bf16's worst pixel is far away, where its 8 significant bits are
# a few centimetres.
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
WARM_UP = 3  # calls
SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 1.5, 7, 50  # of a measurement; seconds for each engine


class OutOfTolerance(UserError):
    """An engine that differs from eager by more than its precision allows."""


@dataclass(frozen=True)
class Accuracy:
    """Differences from eager fp32 on real frames.

    Attributes:
        mean_rel_err: of the frame, or the batch, with the largest mean.
        mean_spread_err: likewise, of spread in log depth; 0 if the refiner has no confidence.
    """

    max_abs_err_m: float
    mean_rel_err: float
    frames: int
    mean_spread_err: float = 0.0


def compare_with_eager(
    engine: Forward, eager: Forward, rgb_u8: Tensor, zoe_u16: Tensor, batches: Sequence[int]
) -> Accuracy:
    """Run both on the same frames, uint8 [N, H, W, 3] and uint16 [N, H, W], at every batch size.

    Raises `UserError` if the engine fails at one of them, or has other outputs than eager.
    """
    with torch.inference_mode():
        expected = eager(rgb_u8, zoe_u16)
        found = []
        for batch in batches:
            picked = torch.arange(max(batch, len(rgb_u8)), device=rgb_u8.device) % len(rgb_u8)
            for part in picked.split(batch):
                try:
                    outputs = engine(rgb_u8[part], _rows(zoe_u16, part))
                except RuntimeError as error:
                    raise UserError(
                        f"the engine does not run at batch {len(part)}: {last_line(error)}: "
                        "not published"
                    ) from None
                found.append(differences(outputs, [_rows(values, part) for values in expected]))
    worst, mean, spread = np.array(found).max(0)
    return Accuracy(float(worst), float(mean), len(rgb_u8), float(spread))


def differences(outputs: list[Tensor], expected: list[Tensor]) -> tuple[float, float, float]:
    """Of a batch's outputs: worst depth in metres, mean relative depth, mean spread.

    Raises `UserError` for another number of outputs.
    """
    if len(outputs) != len(expected):
        raise UserError(
            f"the engine has {len(outputs)} outputs, and the refiner has {len(expected)}: not "
            "published"
        )
    depth_m, expected_m = (values[0].float() * ZOE_UNIT_M for values in (outputs, expected))
    error_m = (depth_m - expected_m).abs()
    relative = error_m / expected_m.clamp(min=0.05)
    spread = 0.0
    if len(outputs) > 1:
        spread = (outputs[1].float() - expected[1].float()).abs().mean().item() / SPREAD_UNITS
    return error_m.max().item(), relative.mean().item(), spread


def tolerances(precision: str, farthest_m: float) -> tuple[float, float]:
    """The largest allowed difference of depths up to `farthest_m`: worst pixel in metres, mean."""
    worst, mean = TOLERANCES[precision]
    return worst * max(1.0, farthest_m / FARTHEST_M), mean


def check_tolerance(
    accuracy: Accuracy, kind: str, precision: str, farthest_m: float = FARTHEST_M
) -> None:
    """Raises `OutOfTolerance` if an engine differs too much from the eager refiner."""
    worst, mean = tolerances(precision, farthest_m)
    if accuracy.max_abs_err_m > worst or accuracy.mean_rel_err > mean:
        raise OutOfTolerance(
            f"{kind} in {precision} differs from the refiner by {accuracy.max_abs_err_m:.3f} m at "
            f"the worst pixel (allowed {worst:g}) and {accuracy.mean_rel_err:.2%} in the worst "
            f"frame (allowed {mean:.2%}): not published"
        )
    if accuracy.mean_spread_err > mean:
        raise OutOfTolerance(
            f"{kind} in {precision} differs from the refiner's confidence by "
            f"{accuracy.mean_spread_err:.4f} in log depth in the worst frame (allowed {mean}): "
            "not published"
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


def call_on_first(
    forward: Forward, frames: tuple[Tensor, Tensor], device: torch.device | str
) -> Callable[[], Any]:
    """A call of an engine with the first frame, which is on the engine's device before."""
    rgb_u8, zoe_u16 = (tensor[:1].to(device) for tensor in frames)
    return partial(forward, rgb_u8, zoe_u16)


def time_interleaved(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Median milliseconds of each call.

    The calls take turns in every round, so that other work on the machine disturbs all alike. In
    its turn each runs twice, and the second time counts: the threads of the one before it spin on
    the cores for a while.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    with torch.inference_mode():
        for _ in range(WARM_UP):  # TorchScript optimizes in its first calls
            for call in calls.values():
                call()
        end = time.perf_counter() + SECONDS * len(calls)
        for number in range(MOST_ROUNDS):
            if number >= LEAST_ROUNDS and time.perf_counter() > end:
                break
            for name, call in calls.items():
                call()
                samples[name].append(time_call(call))
    return {name: float(np.median(values)) for name, values in samples.items()}


def time_call(call: Callable[[], Any]) -> float:
    """Milliseconds of one call, until the GPU has finished."""
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return (time.perf_counter() - start) * 1e3


def synchronize() -> None:
    """Wait for the GPU, if this process uses one."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """Rows of a uint16 tensor, which torch cannot index on every device."""
    return values.view(torch.int16)[rows].view(torch.uint16)
