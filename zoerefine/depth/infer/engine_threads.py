"""The threads that call an engine while others read and write.

On a CPU there are as many as the engine uses best. On a GPU one thread queues batches and another
one collects their results (`pinned_ring.py`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from zoerefine.base.machine.memory import aligned_stack
from zoerefine.depth.exporting.bundle.bundle import Engine

if TYPE_CHECKING:  # importing this file does not import torch
    from zoerefine.depth.infer.pinned_ring import PinnedRing

T = TypeVar("T")
BATCHES_AHEAD = 2  # per thread


class EngineThreads:
    """Refines batches in the background; a context manager.

    Args:
        outputs: how many of the engine's outputs are needed: depth, or depth and spread.

    Attributes:
        ahead: the number of batches that may wait for their results.
    """

    def __init__(self, engine: Engine, outputs: int) -> None:
        self.engine, self.outputs = engine, outputs
        self.ahead = BATCHES_AHEAD * engine.parallel_calls
        if outputs > 1:
            engine.require_confidence()
        self.ring: PinnedRing | None = None
        if str(engine.device).startswith("cuda"):
            from zoerefine.depth.infer import pinned_ring

            self.ring = pinned_ring.PinnedRing(engine, self.ahead + 1)
        self.calling = engine_pool(engine)
        self.collecting = ThreadPoolExecutor(1)

    def __enter__(self) -> "EngineThreads":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.calling.shutdown()
        self.collecting.shutdown()

    def submit(
        self,
        rgb: Sequence[np.ndarray],
        zoe: Sequence[np.ndarray],
        then: Callable[[list[np.ndarray]], T],
    ) -> Future[T]:
        """Refine a batch, and call `then` with the outputs, uint16 [B, H, W] each.

        Args:
            rgb: pictures uint8 [H, W, 3] of one size.
            zoe: their pseudo depth, uint16 [H, W].
        """
        if self.ring is None:
            return self.calling.submit(lambda: then(self.refine(rgb, zoe)))
        ring = self.ring
        started = self.calling.submit(ring.start, rgb, zoe, self.outputs)
        return self.collecting.submit(lambda: then(ring.collect(started.result())))

    def refine(self, rgb: Sequence[np.ndarray], zoe: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of a batch, in this thread."""
        return self.engine.arrays(aligned_stack(rgb), aligned_stack(zoe))[: self.outputs]


def engine_pool(engine: Engine) -> ThreadPoolExecutor:
    """Threads to call an engine in. If there are several, each call uses one core."""
    threads = engine.parallel_calls

    def limit_threads() -> None:
        if threads > 1:  # only with engines that run in torch
            import torch

            torch.set_num_threads(1)  # for calls from this thread

    return ThreadPoolExecutor(threads, initializer=limit_threads)
