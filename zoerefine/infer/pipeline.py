"""Refine all frames of a source: reading, ZoeDepth, engine and writing overlap.

    reading thread    source -> the pool decodes, in order -> batches of one picture size
    ZoeDepth thread   adds pseudo depth to batches that have none
    engine threads    refine (`engine_threads.py`)
    the pool          writes files

Each stage runs a few frames ahead of the next one and no further. A frame that cannot be read is
named and left out; the others are not affected.
"""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from zoerefine.errors import UserError
from zoerefine.exporting.bundle import Engine
from zoerefine.infer.engine_threads import BATCHES_AHEAD, EngineThreads
from zoerefine.infer.pseudo import PseudoDepth, ZoeDepth
from zoerefine.infer.results import ResultFolder, digest_of
from zoerefine.infer.sources import FrameSource, SourceFrame
from zoerefine.processor_use import usable_cores
from zoerefine.progress import Progress, bar, say

FRAMES_AHEAD = 16  # decoded before the engine takes them, or waiting in an incomplete batch

T = TypeVar("T")


@dataclass(frozen=True)
class Inference:
    """What is refined, by what, and where the results go."""

    engine: Engine
    source: FrameSource
    pseudo: PseudoDepth
    results: ResultFolder


@dataclass(frozen=True)
class FrameInWork:
    """A frame on its way through the pipeline.

    Attributes:
        name: of its results.
        inputs: the digest of what it is refined from.
        rgb: uint8 [H, W, 3].
        zoe: pseudo depth uint16 [H, W], metres * 256; None until ZoeDepth has been run.
        zoe_is_new: True if ZoeDepth was run now, so its output must be written.
    """

    name: str
    inputs: str
    rgb: np.ndarray
    zoe: np.ndarray | None
    zoe_is_new: bool = False


@dataclass
class InferenceSummary:
    """What happened to the frames, by name.

    Attributes:
        kept: their files existed already.
        written: refined now, in `seconds`.
        left_out: could not be read.
    """

    kept: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def done(self) -> set[str]:
        """All frames whose files exist now."""
        return {*self.kept, *self.written}

    def leave_out(self, name: str, reason: object) -> None:
        """Record and say that a frame cannot be refined."""
        self.left_out.append(name)
        say(f"left out {name}: {reason}")

    def __str__(self) -> str:
        rate = f", {len(self.written) / self.seconds:.1f} frames/s" if self.written else ""
        counts = f"{len(self.written)} frames refined, {len(self.kept)} kept"
        return f"{counts}, {len(self.left_out)} left out{rate}"


def refine(job: Inference, batch: int) -> InferenceSummary:
    """Refine every frame that has no files yet, `batch` frames of one size at a time.

    Raises `UserError` if results cannot be written.
    """
    summary = InferenceSummary()
    start = time.perf_counter()
    with (
        ThreadPoolExecutor(max(2, usable_cores())) as pool,
        EngineThreads(job.engine, 1 + job.results.with_confidence) as engines,
        bar(len(job.source.names), "refining", "frame") as progress,
    ):
        batches = run_ahead(batches_of_one_size(read_ahead(job, pool, summary), batch))
        if isinstance(job.pseudo, ZoeDepth):
            batches = run_ahead(with_pseudo_depth(batches, job.pseudo))
        for writing in refine_in_threads(engines, batches, job, pool):
            summary.written += [future.result() for future in writing]
            update_bar(progress, summary)
        update_bar(progress, summary)
    summary.seconds = time.perf_counter() - start
    return summary


def read_ahead(
    job: Inference, pool: ThreadPoolExecutor, summary: InferenceSummary
) -> Iterator[FrameInWork]:
    """Frames that are not done yet, in order, decoded by the pool before they are needed."""
    waiting: deque[tuple[str, Future[FrameInWork]]] = deque()
    for frame in readable_frames(job.source, summary):
        inputs = digest_of(frame.fingerprint, job.pseudo.fingerprint(frame.name))
        if job.results.is_done(frame.name, inputs):
            summary.kept.append(frame.name)
            continue
        waiting.append((frame.name, pool.submit(read_frame, frame, inputs, job.pseudo)))
        if len(waiting) > FRAMES_AHEAD:
            yield from frame_unless_broken(*waiting.popleft(), summary)
    for one in waiting:
        yield from frame_unless_broken(*one, summary)


def readable_frames(source: FrameSource, summary: InferenceSummary) -> Iterator[SourceFrame]:
    """The frames of a source, until it cannot be read any further."""
    try:
        yield from source.frames()
    except UserError as error:
        summary.leave_out(source.label, error)


def read_frame(frame: SourceFrame, inputs: str, pseudo: PseudoDepth) -> FrameInWork:
    """Decode a frame. Raises `UserError` for a damaged file, or two different sizes."""
    rgb, zoe = frame.read(), pseudo.read(frame.name, inputs)
    if zoe is not None and zoe.shape != rgb.shape[:2]:
        sizes = " and ".join(f"{a.shape[1]}x{a.shape[0]}" for a in (rgb, zoe))
        raise UserError(f"the picture and {pseudo.path(frame.name)} differ in size: {sizes}")
    return FrameInWork(frame.name, inputs, rgb, zoe)


def frame_unless_broken(
    name: str, reading: Future[FrameInWork], summary: InferenceSummary
) -> Iterator[FrameInWork]:
    """The frame, or nothing if it could not be read, which is recorded."""
    try:
        yield reading.result()
    except UserError as error:
        summary.leave_out(name, error)


def batches_of_one_size(frames: Iterator[FrameInWork], size: int) -> Iterator[list[FrameInWork]]:
    """Batches of at most `size` frames of one picture size, all with or all without pseudo depth.

    Frames of a rare size wait for others, but the number of waiting frames is bounded.
    """
    groups: dict[tuple[object, bool], list[FrameInWork]] = {}
    for frame in frames:
        key = frame.rgb.shape, frame.zoe is None
        groups.setdefault(key, []).append(frame)
        if len(groups[key]) == size:
            yield groups.pop(key)
        elif sum(map(len, groups.values())) >= 2 * size + FRAMES_AHEAD:
            yield groups.pop(next(iter(groups)))  # the one that has waited longest
    yield from groups.values()


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
    job: Inference,
    pool: ThreadPoolExecutor,
) -> Iterator[list[Future[str]]]:
    """Refine batches a few ahead; yields for each the futures that write its files."""
    refining: deque[Future[list[Future[str]]]] = deque()
    for batch in batches:
        pictures = [frame.rgb for frame in batch]
        depths = [frame.zoe for frame in batch if frame.zoe is not None]
        then = partial(write_batch, batch, job=job, pool=pool)
        refining.append(engines.submit(pictures, depths, then))
        if len(refining) > engines.ahead:
            yield refining.popleft().result()
    for future in refining:
        yield future.result()


def write_batch(
    batch: list[FrameInWork], outputs: list[np.ndarray], job: Inference, pool: ThreadPoolExecutor
) -> list[Future[str]]:
    """Start to write the files of frames with these outputs, uint16 [B, H, W] each."""
    return [
        pool.submit(write_frame, frame, of_frame, job)
        for frame, *of_frame in zip(batch, *outputs, strict=True)
    ]


def update_bar(progress: Progress, summary: InferenceSummary) -> None:
    """Update the bar. Its rate counts only the frames that are refined now."""
    progress.initial = len(summary.kept) + len(summary.left_out)
    progress.update(progress.initial + len(summary.written) - progress.n)


def write_frame(frame: FrameInWork, outputs: list[np.ndarray], job: Inference) -> str:
    """Write the files of a frame with these outputs, uint16 [H, W]; returns its name."""
    if frame.zoe_is_new and isinstance(job.pseudo, ZoeDepth) and frame.zoe is not None:
        job.pseudo.write(frame.name, frame.inputs, frame.zoe)
    job.results.write(frame.name, frame.inputs, frame.rgb, outputs)
    return frame.name


def run_ahead(items: Iterator[T]) -> Iterator[T]:
    """The items of an iterator, which runs in its own thread and a few items ahead."""
    end = object()
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(BATCHES_AHEAD))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item  # type: ignore[misc]
