"""Refine all frames of a source: reading, depth network, engine and writing overlap.

    reading thread    source -> the pool decodes, in order -> batches of one picture size
    network thread    adds pseudo depth to batches that have none
    engine threads    refine; on a CPU as many as the engine uses best, on a GPU one that queues
                      batches, and another that collects their results (`PinnedCalls`)
    stream thread     with --stream: makes depth steady in the order of frames; metric points
                      correct before it, in the engine threads
    the pool          corrects by metric points, before the engine if it takes them, and after it;
                      writes files

Each stage runs a few frames ahead of the next one and no further, and all frames between reading
and writing take a bounded part of the memory. A frame that cannot be read is named and left out;
the others are not affected.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.machine.memory import aligned_stack, free_memory
from zoerefine.base.progress import Progress, bar
from zoerefine.base.threads import produced_ahead, submitted_ahead
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.exporting.engine import on_gpu
from zoerefine.depth.infer.inference import (
    FrameInWork,
    FrameMemory,
    FrameToRead,
    Inference,
    InferenceSummary,
    LeaveOut,
    batches_of_one_size,
    frames_to_read,
    read_ahead,
)
from zoerefine.depth.infer.sources import NetworkDepth
from zoerefine.depth.infer.stream import ClipFilter
from zoerefine.depth.points.for_engines import corrected, hinted, spread_u16

if TYPE_CHECKING:  # importing this file does not import torch
    from torch import Tensor

    from zoerefine.depth.exporting.pinned import PinnedCalls

MEMORY_SHARE = 0.25  # of the free memory, for frames between reading and writing
BATCHES_AHEAD = 2  # of an engine thread, and of the network

T = TypeVar("T")
# Writes the outputs of a frame, uint16 [H, W] each.
WriteFrame = Callable[[FrameInWork, list[np.ndarray]], T]


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
        self.pinned: PinnedCalls | None = None
        if on_gpu(engine.device):
            import torch

            from zoerefine.depth.exporting import pinned

            self.pinned = pinned.PinnedCalls(torch.device(engine.device), self.ahead + 1)
        self.threads = ExitStack()
        self.calling = self.threads.enter_context(engine_pool(engine))
        self.collecting = self.threads.enter_context(ThreadPoolExecutor(1))

    def __enter__(self) -> "EngineThreads":
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.close()

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
        if self.pinned is None:
            return self.calling.submit(lambda: then(self.refine(rgb, zoe)))
        pinned = self.pinned
        started = self.calling.submit(pinned.start, self.refine_tensors, rgb, zoe)
        return self.collecting.submit(lambda: then(pinned.collect(started.result())))

    def refine(self, rgb: Sequence[np.ndarray], zoe: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of a batch, in this thread."""
        return self.engine.arrays(aligned_stack(rgb), aligned_stack(zoe))[: self.outputs]

    def refine_tensors(self, rgb_u8: "Tensor", zoe_u16: "Tensor") -> "list[Tensor]":
        """The same for tensors on the engine's GPU."""
        return self.engine.outputs(rgb_u8, zoe_u16)[: self.outputs]


@contextmanager
def engine_pool(engine: Engine) -> Iterator[ThreadPoolExecutor]:
    """Threads to call an engine in. If there are several, each call uses one core."""
    if engine.parallel_calls == 1:
        with ThreadPoolExecutor(1) as pool:
            yield pool
        return
    import torch  # only engines that run in it are called by several threads

    cores = torch.get_num_threads()
    one_core = partial(torch.set_num_threads, 1)  # for calls from that thread
    try:
        with ThreadPoolExecutor(engine.parallel_calls, initializer=one_core) as pool:
            yield pool
    finally:
        torch.set_num_threads(cores)  # threads that start later take the number that was set last


@dataclass(frozen=True)
class Stages:
    """What the stages share: the pool, the engine's threads, the bar and the frames' memory."""

    pool: ThreadPoolExecutor
    engines: EngineThreads
    progress: Progress
    memory: FrameMemory

    def batches(
        self, frames: Iterator[FrameToRead], leave_out: LeaveOut, size: int
    ) -> Iterator[list[FrameInWork]]:
        """The frames, read ahead, in batches of at most `size` that are ready ahead, too."""
        read = read_ahead(frames, self.pool, leave_out, self.memory)
        return produced_ahead(batches_of_one_size(read, size), BATCHES_AHEAD)

    def show(self, written: int, others: int) -> None:
        """Update the bar. Its rate counts only the frames that are refined now."""
        self.progress.initial = others
        self.progress.update(others + written - self.progress.n)


@contextmanager
def stages_of(engine: Engine, outputs: int, frames: int) -> Iterator[Stages]:
    """The stages of a pipeline for a number of frames, and for so many of the engine's outputs."""
    with (
        ThreadPoolExecutor(max(2, usable_cores())) as pool,
        EngineThreads(engine, outputs) as engines,
        bar(frames, "refining", "frame") as progress,
        FrameMemory(int(MEMORY_SHARE * free_memory())) as memory,
    ):
        yield Stages(pool, engines, progress, memory)


def refine(job: Inference, batch: int) -> InferenceSummary:
    """Refine every frame that has no files yet, `batch` frames of one size at a time.

    Batches are smaller where the memory does not hold so many frames. Raises `UserError` if results
    cannot be written.
    """
    summary = InferenceSummary()
    start = time.perf_counter()
    outputs = 1 + job.results.with_confidence
    with stages_of(job.engine, outputs, len(job.source.names)) as stages:
        batches = stages.batches(frames_to_read(job, summary), summary.leave_out, batch)
        if isinstance(job.pseudo, NetworkDepth):
            batches = with_pseudo_depth(batches, job, job.pseudo, summary, stages.memory)
            batches = produced_ahead(batches, BATCHES_AHEAD)
        for writing in start_writing(job, stages, batches):
            summary.written += [future.result() for future in writing]
            stages.show(len(summary.written), len(summary.kept) + len(summary.left_out))
        stages.show(len(summary.written), len(summary.kept) + len(summary.left_out))
    summary.seconds = time.perf_counter() - start
    return summary


def with_pseudo_depth(
    batches: Iterator[list[FrameInWork]],
    job: Inference,
    network: NetworkDepth,
    summary: InferenceSummary,
    memory: FrameMemory,
) -> Iterator[list[FrameInWork]]:
    """The batches, with the network's output added to those without pseudo depth.

    Frames whose metric points are in another unit than it are left out.
    """
    for batch in batches:
        if batch[0].zoe is not None:
            yield batch
            continue
        pictures = aligned_stack([frame.rgb for frame in batch])
        depths = network.predict(pictures, (frame.name for frame in batch))
        found = []
        for frame, zoe in zip(batch, depths, strict=True):
            try:
                job.check_unit(frame.name, frame.points, zoe)
            except UserError as error:
                summary.leave_out(frame.name, error)
                memory.free(frame.nbytes)
            else:
                found.append(replace(frame, zoe=zoe, zoe_is_new=True))
        if found:
            yield found


def start_writing(
    job: Inference, stages: Stages, batches: Iterator[list[FrameInWork]]
) -> Iterator[list[Future[str]]]:
    """Refine batches a few ahead; yields for each the futures that write its files."""
    write = partial(write_frame, job=job, memory=stages.memory)
    if job.results.with_stream:
        return refine_as_stream(stages, batches, write, ClipFilter(job.results))
    return refine_in_threads(stages, batches, write)


def refine_in_threads(
    stages: Stages, batches: Iterator[list[FrameInWork]], write: WriteFrame[T]
) -> Iterator[list[Future[T]]]:
    """Refine batches a few ahead; yields for each the futures that write its files."""

    def submit(batch: list[FrameInWork]) -> Future[list[Future[T]]]:
        then = partial(write_batch, batch, pool=stages.pool, write=write)
        return stages.engines.submit(*inputs_of(batch, stages), then)

    return submitted_ahead(batches, submit, stages.engines.ahead)


def refine_as_stream(
    stages: Stages, batches: Iterator[list[FrameInWork]], write: WriteFrame[T], clips: ClipFilter
) -> Iterator[list[Future[T]]]:
    """The same, with depth that one thread makes steady in the order of the batches."""
    with ThreadPoolExecutor(1) as stream:

        def submit(batch: list[FrameInWork]) -> Future[list[Future[T]]]:
            def correct(outputs: list[np.ndarray]) -> list[list[np.ndarray]]:
                return [
                    by_points(frame, list(of_frame), stages.engines.engine)
                    for frame, *of_frame in zip(batch, *outputs, strict=True)
                ]

            refined = stages.engines.submit(*inputs_of(batch, stages), correct)

            def then() -> list[Future[T]]:
                outputs = steady(batch, refined.result(), clips)
                return write_batch(batch, outputs, stages.pool, write)

            return stream.submit(then)

        yield from submitted_ahead(batches, submit, stages.engines.ahead)


def by_points(frame: FrameInWork, outputs: list[np.ndarray], engine: Engine) -> list[np.ndarray]:
    """A frame's depth and, if asked for, spread, uint16 [H, W], corrected by its metric points."""
    if not len(frame.points):
        return outputs
    depth, *spreads = outputs
    first = frame.zoe if engine.takes_points and frame.zoe is not None else depth
    return [
        corrected(depth, frame.points),
        *(spread_u16(first, frame.points, spread) for spread in spreads),
    ]


def steady(
    batch: list[FrameInWork], frames: list[list[np.ndarray]], clips: ClipFilter
) -> list[np.ndarray]:
    """Steady depth of the next frames, uint16 [B, H, W], and their spread if it is asked for.

    The spread of steady depth is that of the frame (docs/stream.md has its coverage).
    """
    for frame, outputs in zip(batch, frames, strict=True):
        assert frame.place
        outputs[0] = clips.steady(frame.place, frame.rgb, outputs[0])
    return [np.stack(output) for output in zip(*frames, strict=True)]


def inputs_of(
    batch: list[FrameInWork], stages: Stages
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The pictures and the pseudo depth of a batch, with metric points if the engine takes them."""
    pictures = [frame.rgb for frame in batch]
    depths = [frame.zoe for frame in batch if frame.zoe is not None]
    if not stages.engines.engine.takes_points or not any(len(frame.points) for frame in batch):
        return pictures, depths
    found = stages.pool.map(hinted, pictures, depths, [frame.points for frame in batch])
    pictures, depths = map(list, zip(*found, strict=True))
    return pictures, depths


def write_batch(
    batch: list[FrameInWork],
    outputs: list[np.ndarray],
    pool: ThreadPoolExecutor,
    write: WriteFrame[T],
) -> list[Future[T]]:
    """Start to write the files of frames with these outputs, uint16 [B, H, W] each."""
    return [
        pool.submit(write, frame, of_frame)
        for frame, *of_frame in zip(batch, *outputs, strict=True)
    ]


def write_frame(
    frame: FrameInWork, outputs: list[np.ndarray], job: Inference, memory: FrameMemory
) -> str:
    """Write the files of a frame with these outputs, uint16 [H, W]; returns its name.

    Metric points have corrected those of a stream already.
    """
    try:
        if not frame.place:
            outputs = by_points(frame, outputs, job.engine)
        if frame.zoe_is_new and isinstance(job.pseudo, NetworkDepth) and frame.zoe is not None:
            job.pseudo.write(frame.name, frame.inputs, frame.zoe)
        inputs = frame.place.inputs if frame.place else frame.inputs
        job.results.write(frame.name, inputs, frame.rgb, outputs)
    finally:
        memory.free(frame.nbytes)
    return frame.name
