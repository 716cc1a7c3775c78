"""Tensors: what `Refiner` is given stays on its device; batches of arrays go to a GPU and back."""

import queue
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.base.errors import UserError
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.exporting.outputs import SPREAD_UNITS
from zoerefine.depth.exporting.pinned import PinnedSlot

UNITS = ZOE_UNIT_M, 1 / SPREAD_UNITS  # of an engine's outputs: metres and log depth
LARGEST = 65535


def as_tensor(values: Any) -> Tensor:
    """A tensor of a tensor, a NumPy array, or an array of another library, without a copy.

    Only an array that cannot be written to is copied: torch warns of it. DLPack lets the library's
    stream wait where that is needed. Raises `UserError` for what is none.
    """
    if isinstance(values, Tensor):
        if values.is_nested or values.layout != torch.strided:
            raise UserError("rgb and zoe must be dense tensors: call to_dense() or stack them")
        return values.detach()
    if isinstance(values, np.ndarray):
        return torch.from_numpy(np.require(values, None, ["C", "W"]))
    try:
        tensor: Tensor = torch.from_dlpack(values)
    except (RuntimeError, TypeError, AttributeError, BufferError):
        name = type(values).__name__
        raise UserError(f"rgb and zoe must be arrays or tensors, got {name}") from None
    return tensor


def batch_of_tensors(rgb_u8: Tensor, depth: Tensor) -> tuple[Tensor, Tensor]:
    """uint8 [..., H, W, 3] and depth [..., H, W] as uint8 [B, H, W, 3] and uint16 [B, H, W]."""
    height, width = depth.shape[-2:]
    zoe_u16 = depth if depth.dtype == torch.uint16 else encode(depth)
    return rgb_u8.reshape(-1, height, width, 3), zoe_u16.reshape(-1, height, width)


def encode(depth_m: Tensor) -> Tensor:
    """Metres as uint16, as `depth_codec.ZOEDEPTH.encode` does for arrays."""
    wide = torch.promote_types(depth_m.dtype, torch.float32)  # half does not reach 65535
    finite_m = torch.where(depth_m.isfinite(), depth_m, 0.0).to(wide)
    values = (finite_m / ZOE_UNIT_M).round().clamp(0, LARGEST)
    return values.to(torch.int32).to(torch.uint16)


def outputs_like(depth: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
    """Outputs uint16 [B, H, W] in the shape and on the device of `depth`.

    Where `depth` is floats, float32 in metres and in log depth.
    """
    shaped = [output.reshape(depth.shape).to(depth.device) for output in outputs]
    if depth.dtype == torch.uint16:
        return shaped
    return [output.float() * unit for output, unit in zip(shaped, UNITS, strict=False)]


class PinnedRing:
    """A few slots of pinned memory for an engine on a GPU, without a wait between batches.

    engine thread      waits for a free slot, fills its input buffers, and queues on the GPU:
                       copy of the inputs, engine, copy of the outputs to the slot, event `done`
    collecting thread  waits for `done`, copies the outputs to arrays, and frees the slot

    The GPU copies pinned memory by itself, so the engine thread goes on with the next batch.

    Args:
        slots: the number of batches whose results have not been collected yet, at most.
    """

    def __init__(self, engine: Engine, slots: int) -> None:
        self.engine, self.device = engine, torch.device(engine.device)
        self.free: queue.Queue[PinnedSlot] = queue.Queue()
        for _ in range(slots):
            self.free.put(PinnedSlot(sleeps=True))

    def start(
        self, rgb: Sequence[np.ndarray], zoe: Sequence[np.ndarray], outputs: int
    ) -> PinnedSlot:
        """Queue a batch on the GPU. It waits for a free slot, but not for the GPU.

        Args:
            rgb: pictures uint8 [H, W, 3].
            zoe: their pseudo depth, uint16 [H, W].
            outputs: how many of the engine's outputs are needed.
        """
        slot = self.free.get()
        try:
            slot.start(lambda *frames: self.engine.outputs(*frames)[:outputs], self.device,
                       [rgb, zoe])  # fmt: skip
        except BaseException:
            self.free.put(slot)  # otherwise the next batch would wait for ever
            raise
        return slot

    def collect(self, slot: PinnedSlot) -> list[np.ndarray]:
        """Wait for a batch; its outputs, uint16 [B, H, W] each. The slot is free afterwards."""
        try:
            return slot.results()
        finally:
            self.free.put(slot)
