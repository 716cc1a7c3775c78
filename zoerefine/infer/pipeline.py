"""Refine all frames of a source: reading, ZoeDepth, engine and writing overlap.

    reading thread    source -> the pool decodes, in order -> batches of one picture size
    ZoeDepth thread   adds pseudo depth to batches that have none
    engine threads    refine (`engine_threads.py`)
    the pool          corrects by metric points, writes files

Each stage runs a few frames ahead of the next one and no further, and all frames between reading
and writing take a bounded part of the memory. A frame that cannot be read is named and left out;
the others are not affected.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from zoerefine.infer.engine_threads import BATCHES_AHEAD, EngineThreads
from zoerefine.infer.frame_memory import FrameMemory
from zoerefine.infer.inference import FrameInWork, Inference, InferenceSummary
from zoerefine.infer.pseudo import ZoeDepth
from zoerefine.infer.read_ahead import batches_of_one_size, frames_to_read, read_ahead
from zoerefine.memory import free_memory
from zoerefine.points.spread import spread_points_u16
from zoerefine.processor_use import usable_cores
from zoerefine.progress import Progress, bar

MEMORY_SHARE = 0.25  # of the free memory, for frames between reading and writing

T = TypeVar("T")
# Writes the outputs of a frame, uint16 [H, W] each.
WriteFrame = Callable[[FrameInWork, list[np.ndarray]], T]


def refine(job: Inference, batch: int) -> InferenceSummary:
    """Refine every frame that has no files yet, `batch` frames of one size at a time.

    Batches are smaller where the memory does not hold so many frames. Raises `UserError` if results
    cannot be written.
    """
    summary = InferenceSummary()
    start = time.perf_counter()
    with (
        ThreadPoolExecutor(max(2, usable_cores())) as pool,
        EngineThreads(job.engine, 1 + job.results.with_confidence) as engines,
        bar(len(job.source.names), "refining", "frame") as progress,
        FrameMemory(int(MEMORY_SHARE * free_memory())) as memory,
    ):
        frames = read_ahead(frames_to_read(job, summary), pool, summary.leave_out, memory)
        batches = run_ahead(batches_of_one_size(frames, batch))
        if isinstance(job.pseudo, ZoeDepth):
            batches = run_ahead(with_pseudo_depth(batches, job.pseudo))
        write = partial(write_frame, job=job, memory=memory)
        for writing in refine_in_threads(engines, batches, pool, write):
            summary.written += [future.result() for future in writing]
            update_bar(progress, summary)
        update_bar(progress, summary)
    summary.seconds = time.perf_counter() - start
    return summary


def with_pseudo_depth(
    batches: Iterator[list[FrameInWork]], zoedepth: ZoeDepth
) -> Iterator[list[FrameInWork]]:
    """The batches, with ZoeDepth's output added to those without pseudo depth."""
    for batch in batches:
        if batch[0].zoe is not None:
            yield batch
            continue
        depths = zoedepth.predict(np.stack([frame.rgb for frame in batch]))
        yield [
            replace(frame, zoe=zoe, zoe_is_new=True)
            for frame, zoe in zip(batch, depths, strict=True)
        ]


def refine_in_threads(
    engines: EngineThreads,
    batches: Iterator[list[FrameInWork]],
    pool: ThreadPoolExecutor,
    write: WriteFrame[T],
) -> Iterator[list[Future[T]]]:
    """Refine batches a few ahead; yields for each the futures that write its files."""
    refining: deque[Future[list[Future[T]]]] = deque()
    for batch in batches:
        pictures = [frame.rgb for frame in batch]
        depths = [frame.zoe for frame in batch if frame.zoe is not None]
        then = partial(write_batch, batch, pool=pool, write=write)
        refining.append(engines.submit(pictures, depths, then))
        if len(refining) > engines.ahead:
            yield refining.popleft().result()
    for future in refining:
        yield future.result()


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


def update_bar(progress: Progress, summary: InferenceSummary) -> None:
    """Update the bar. Its rate counts only the frames that are refined now."""
    progress.initial = len(summary.kept) + len(summary.left_out)
    progress.update(progress.initial + len(summary.written) - progress.n)


def write_frame(
    frame: FrameInWork, outputs: list[np.ndarray], job: Inference, memory: FrameMemory
) -> str:
    """Write the files of a frame with these outputs, uint16 [H, W]; returns its name."""
    try:
        if frame.zoe_is_new and isinstance(job.pseudo, ZoeDepth) and frame.zoe is not None:
            job.pseudo.write(frame.name, frame.inputs, frame.zoe)
        if len(frame.points):
            outputs = [spread_points_u16(outputs[0], frame.points)]
        job.results.write(frame.name, frame.inputs, frame.rgb, outputs)
    finally:
        memory.free(frame.nbytes)
    return frame.name


def run_ahead(items: Iterator[T]) -> Iterator[T]:
    """The items of an iterator, which runs in its own thread and a few items ahead."""
    end = object()
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(BATCHES_AHEAD))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item  # type: ignore[misc]
