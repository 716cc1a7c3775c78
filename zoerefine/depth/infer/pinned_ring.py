"""Pictures to a GPU and results back through pinned memory, without a wait between them.

    engine thread      waits for a free slot, fills its input buffers, and queues on the GPU:
                       copy of the inputs, engine, copy of the outputs to the slot, event `done`
    collecting thread  waits for `done`, copies the outputs to arrays, and frees the slot

The GPU copies pinned memory by itself, so the engine thread goes on with the next batch.
"""

import math
import queue
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from zoerefine.depth.exporting.bundle.bundle import Engine


class PinnedRing:
    """A few slots of pinned memory for an engine on a GPU.

    Args:
        slots: the number of batches whose results have not been collected yet, at most.
    """

    def __init__(self, engine: Engine, slots: int) -> None:
        self.engine = engine
        self.free: queue.Queue[_Slot] = queue.Queue()
        for _ in range(slots):
            self.free.put(_Slot())

    def start(self, rgb: Sequence[np.ndarray], zoe: Sequence[np.ndarray], outputs: int) -> "_Slot":
        """Queue a batch on the GPU. It waits for a free slot, but not for the GPU.

        Args:
            rgb: pictures uint8 [H, W, 3].
            zoe: their pseudo depth, uint16 [H, W].
            outputs: how many of the engine's outputs are needed.
        """
        slot = self.free.get()
        try:
            slot.start(self.engine, rgb, zoe, outputs)
        except BaseException:
            self.free.put(slot)  # otherwise the next batch would wait for ever
            raise
        return slot

    def collect(self, slot: "_Slot") -> list[np.ndarray]:
        """Wait for a batch; its outputs, uint16 [B, H, W] each. The slot is free afterwards."""
        try:
            return slot.results()
        finally:
            self.free.put(slot)


class _Slot:
    """Pinned memory for one batch, and the event after which the GPU does not use it."""

    def __init__(self) -> None:
        self.memory: defaultdict[str, _Pinned] = defaultdict(_Pinned)
        self.outputs: list[Tensor] = []
        # `synchronize` of a blocking event sleeps, where others would occupy a CPU core.
        self.done = torch.cuda.Event(blocking=True)

    def start(
        self, engine: Engine, rgb: Sequence[np.ndarray], zoe: Sequence[np.ndarray], outputs: int
    ) -> None:
        inputs = self.filled("rgb", rgb), self.filled("zoe", zoe)
        on_gpu = [tensor.to(engine.device, non_blocking=True) for tensor in inputs]
        found = engine.outputs(*on_gpu)[:outputs]
        self.outputs = [
            self.memory[f"output {k}"].tensor(one.shape, one.dtype).copy_(one, non_blocking=True)
            for k, one in enumerate(found)
        ]
        self.done.record()

    def filled(self, name: str, arrays: Sequence[np.ndarray]) -> Tensor:
        """The arrays, stacked in pinned memory."""
        dtype = torch.from_numpy(arrays[0]).dtype
        pinned = self.memory[name].tensor((len(arrays), *arrays[0].shape), dtype)
        np.stack(arrays, out=pinned.numpy())
        return pinned

    def results(self) -> list[np.ndarray]:
        """Copies of the outputs, once they are there."""
        self.done.synchronize()
        return [output.numpy().copy() for output in self.outputs]


class _Pinned:
    """Pinned memory that grows with the largest tensor."""

    def __init__(self) -> None:
        self.memory: Tensor | None = None

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor in this memory, with any content."""
        size = math.prod(shape) * dtype.itemsize
        if self.memory is None or len(self.memory) < size:
            self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return self.memory[:size].view(dtype).view(tuple(shape))
