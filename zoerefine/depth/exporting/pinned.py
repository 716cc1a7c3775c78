"""Arrays to a GPU and results back through pinned memory, with one wait: for the results.

The GPU copies pinned memory by itself. Copies of other memory are staged, and the CPU waits for
each of them.
"""

import math
import queue
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

Rows = Sequence[np.ndarray] | np.ndarray  # arrays of one shape and type, or one array of them


class PinnedCalls:
    """Calls functions of a GPU's tensors with arrays; several threads may call at a time.

    A function only queues work on the GPU. With `start` in one thread and `collect` in another, the
    first one goes on with the next batch while the GPU computes.

    Args:
        slots: the number of batches whose results have not been collected yet, at most; a wait for
            results then sleeps. 0: any number, and a wait occupies a CPU core.
    """

    def __init__(self, device: torch.device, slots: int = 0) -> None:
        self.device, self.slots = device, slots
        self.free: queue.SimpleQueue[PinnedSlot] = queue.SimpleQueue()
        for _ in range(slots):
            self.free.put(PinnedSlot(sleeps=True))

    def __call__(
        self, function: Callable[..., Sequence[Tensor]], *inputs: Rows
    ) -> list[np.ndarray]:
        """What a function returns, as arrays."""
        return self.collect(self.start(function, *inputs))

    def start(self, function: Callable[..., Sequence[Tensor]], *inputs: Rows) -> "PinnedSlot":
        """Queue a call on the GPU. It may wait for a free slot, but not for the GPU."""
        try:
            slot = self.free.get(block=self.slots > 0)
        except queue.Empty:
            slot = PinnedSlot(sleeps=False)
        try:
            slot.start(function, self.device, inputs)
        except BaseException:
            self.free.put(slot)  # otherwise the next batch would wait for ever
            raise
        return slot

    def collect(self, slot: "PinnedSlot") -> list[np.ndarray]:
        """Wait for a call, and return its outputs. The slot is free afterwards."""
        try:
            return slot.results()
        finally:
            self.free.put(slot)


class PinnedSlot:
    """Pinned memory for one batch, and the event after which the GPU does not use it.

    Args:
        sleeps: whether waiting for the results sleeps. It wakes later than a wait that occupies a
            CPU core.
    """

    def __init__(self, sleeps: bool) -> None:
        self.memory: dict[str, Tensor] = {}  # each grows with the largest tensor
        self.outputs: list[Tensor] = []
        self.done = torch.cuda.Event(blocking=sleeps)

    def start(
        self,
        function: Callable[..., Sequence[Tensor]],
        device: torch.device,
        inputs: Sequence[Rows],
    ) -> None:
        """Queue on the GPU: copies of the inputs, the function, copies of its outputs."""
        with torch.inference_mode():
            pinned = [self.filled(f"input {k}", rows) for k, rows in enumerate(inputs)]
            found = function(*(one.to(device, non_blocking=True) for one in pinned))
            self.outputs = [
                self.pinned(f"output {k}", one.shape, one.dtype).copy_(one, non_blocking=True)
                for k, one in enumerate(found)
            ]
        # Of this device: another one may be the thread's current one.
        self.done.record(torch.cuda.current_stream(device))

    def filled(self, name: str, rows: Rows) -> Tensor:
        """Arrays, stacked in pinned memory."""
        dtype = torch.from_numpy(np.empty(0, rows[0].dtype)).dtype
        pinned = self.pinned(name, (len(rows), *rows[0].shape), dtype)
        np.stack(list(rows), out=pinned.numpy())
        return pinned

    def results(self) -> list[np.ndarray]:
        """Copies of the outputs, once they are there."""
        self.done.synchronize()
        return [output.numpy().copy() for output in self.outputs]

    def pinned(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor in pinned memory of this name, with any content."""
        size = math.prod(shape) * dtype.itemsize
        if name not in self.memory or len(self.memory[name]) < size:
            # Whatever the caller's default device is: only memory of the CPU can be pinned.
            memory = torch.empty(size, dtype=torch.uint8, pin_memory=True, device="cpu")
            self.memory[name] = memory
        return self.memory[name][:size].view(dtype).view(tuple(shape))
