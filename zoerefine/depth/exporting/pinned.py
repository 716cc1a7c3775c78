"""Arrays to a GPU and results back through pinned memory, with one wait: for the results.

The GPU copies pinned memory by itself. Copies of other memory are staged, and the CPU waits for
each of them.
"""

import math
import queue
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

Rows = Sequence[np.ndarray] | np.ndarray  # arrays of one shape and type, or one array of them


class PinnedCalls:
    """Calls functions of a GPU's tensors with arrays; several threads may call at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.free: queue.SimpleQueue[PinnedSlot] = queue.SimpleQueue()

    def __call__(
        self, function: Callable[..., Sequence[Tensor]], *inputs: Rows
    ) -> list[np.ndarray]:
        """What a function returns, as arrays; it only queues work on the GPU."""
        try:
            slot = self.free.get_nowait()
        except queue.Empty:
            slot = PinnedSlot(sleeps=False)
        try:
            slot.start(function, self.device, inputs)
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
        self.memory: defaultdict[str, _Pinned] = defaultdict(_Pinned)
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
                self.memory[f"output {k}"].like(one).copy_(one, non_blocking=True)
                for k, one in enumerate(found)
            ]
        # Of this device: another one may be the thread's current one.
        self.done.record(torch.cuda.current_stream(device))

    def filled(self, name: str, rows: Rows) -> Tensor:
        """Arrays, stacked in pinned memory."""
        dtype = torch.from_numpy(np.empty(0, rows[0].dtype)).dtype
        pinned = self.memory[name].tensor((len(rows), *rows[0].shape), dtype)
        np.stack(list(rows), out=pinned.numpy())
        return pinned

    def results(self) -> list[np.ndarray]:
        """Copies of the outputs, once they are there."""
        self.done.synchronize()
        return [output.numpy().copy() for output in self.outputs]


class _Pinned:
    """Pinned memory that grows with the largest tensor."""

    def __init__(self) -> None:
        self.memory: Tensor | None = None

    def like(self, tensor: Tensor) -> Tensor:
        """A tensor of the shape and type of another one."""
        return self.tensor(tensor.shape, tensor.dtype)

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor in this memory, with any content."""
        size = math.prod(shape) * dtype.itemsize
        if self.memory is None or len(self.memory) < size:
            # Whatever the caller's default device is: only memory of the CPU can be pinned.
            self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=True, device="cpu")
        return self.memory[:size].view(dtype).view(tuple(shape))
