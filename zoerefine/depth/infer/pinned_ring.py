"""Pictures to a GPU and results back through pinned memory, without a wait between them.

    engine thread      waits for a free slot, fills its input buffers, and queues on the GPU:
                       copy of the inputs, engine, copy of the outputs to the slot, event `done`
    collecting thread  waits for `done`, copies the outputs to arrays, and frees the slot

The GPU copies pinned memory by itself, so the engine thread goes on with the next batch.
"""

import queue
from collections.abc import Sequence

import numpy as np
import torch

from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.exporting.pinned import PinnedSlot


class PinnedRing:
    """A few slots of pinned memory for an engine on a GPU.

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
