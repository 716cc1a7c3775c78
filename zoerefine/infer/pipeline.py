"""Refine what a source gives: reading, ZoeDepth, engine and writing overlap.

    reading thread    source -> the pool decodes, in order -> batches of one size
    ZoeDepth thread   batches without pseudo depth get it
    engine threads    refined depth: one thread on a GPU, one a core on a CPU
    the pool          writes files

Each waits for the next where it is ahead by more than a few frames. A frame that cannot be read
is named and left out, and costs nothing else.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from zoerefine.errors import UserError
from zoerefine.export.bundle import Engine
from zoerefine.infer.pseudo import Pseudo, ZoeDepth
from zoerefine.infer.results import Results, digest_of
from zoerefine.infer.sources import FrameSource, Shot
from zoerefine.progress import bar, say

if TYPE_CHECKING:
    from tqdm import tqdm

FRAMES_AHEAD = 16  # that may be decoded before the engine takes them, and written after it
BATCHES_AHEAD = 2  # a thread

T = TypeVar("T")


@dataclass(frozen=True)
class Inference:
    """What is refined by what, and where to."""

    engine: Engine
    source: FrameSource
    pseudo: Pseudo
    results: Results


@dataclass(frozen=True)
class FrameInWork:
    """A frame on its way.

    Attributes:
        name, inputs: of its results, and the digest of what they are made from.
        rgb: uint8 [H, W, 3].
        zoe: uint16 [H, W], metres * 256; None where ZoeDepth is still to be run.
        new: whether ZoeDepth was run for it, so that its depth is still to be written.
    """

    name: str
    inputs: str
    rgb: np.ndarray
    zoe: np.ndarray | None
    new: bool = False


@dataclass
class InferenceSummary:
    """What became of the frames, by name.

    Attributes:
        kept: their files were there before.
        written: refined now, in `seconds`.
        left_out: what could not be read.
    """

    kept: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def done(self) -> set[str]:
        """All frames whose files are there now."""
        return {*self.kept, *self.written}

    def leave_out(self, name: str, why: object) -> None:
        """Name something that cannot be refined."""
        self.left_out.append(name)
        say(f"left out {name}: {why}")

    def __str__(self) -> str:
        rate = f", {len(self.written) / self.seconds:.1f} frames/s" if self.written else ""
        counts = f"{len(self.written)} frames refined, {len(self.kept)} kept"
        return f"{counts}, {len(self.left_out)} left out{rate}"


def refine(job: Inference, batch: int) -> InferenceSummary:
    """Refine every frame whose files are not there yet; returns what became of all.

    Raises `UserError` where results cannot be written.
    """
    outcome = InferenceSummary()
    start = time.perf_counter()
    with (
        ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool,
        engine_pool(job.engine) as engines,
        bar(len(job.source.names), "refining", "frame") as progress,
    ):
        batches = ahead(group(read_ahead(job, pool, outcome), batch))
        if isinstance(job.pseudo, ZoeDepth):
            batches = ahead(with_zoe(batches, job.pseudo))
        for writing in in_threads(engines, batches, job, pool):
            outcome.written += [future.result() for future in writing]
            show(progress, outcome)
        show(progress, outcome)
    outcome.seconds = time.perf_counter() - start
    return outcome


def read_ahead(
    job: Inference, pool: ThreadPoolExecutor, outcome: InferenceSummary
) -> Iterator[FrameInWork]:
    """Frames that are not done yet, in order, decoded by the pool before they are needed."""
    waiting: deque[tuple[str, Future[FrameInWork]]] = deque()
    for shot in shots(job.source, outcome):
        inputs = digest_of(shot.stamp, job.pseudo.stamp(shot.name))
        if job.results.is_done(shot.name, inputs):
            outcome.kept.append(shot.name)
            continue
        waiting.append((shot.name, pool.submit(read_frame, shot, inputs, job.pseudo)))
        if len(waiting) > FRAMES_AHEAD:
            yield from whole(*waiting.popleft(), outcome)
    for one in waiting:
        yield from whole(*one, outcome)


def shots(source: FrameSource, outcome: InferenceSummary) -> Iterator[Shot]:
    """What a source gives, up to where it cannot be read any more."""
    try:
        yield from source.shots()
    except UserError as error:
        outcome.leave_out(source.label, error)


def read_frame(shot: Shot, inputs: str, pseudo: Pseudo) -> FrameInWork:
    """Decode a frame. Raises `UserError` for a damaged file, or two sizes."""
    rgb, zoe = shot.read(), pseudo.read(shot.name, inputs)
    if zoe is not None and zoe.shape != rgb.shape[:2]:
        sizes = " and ".join(f"{a.shape[1]}x{a.shape[0]}" for a in (rgb, zoe))
        raise UserError(f"the picture and {pseudo.path(shot.name)} differ in size: {sizes}")
    return FrameInWork(shot.name, inputs, rgb, zoe)


def whole(
    name: str, reading: Future[FrameInWork], outcome: InferenceSummary
) -> Iterator[FrameInWork]:
    """The frame, or none where it is broken, which is noted."""
    try:
        yield reading.result()
    except UserError as error:
        outcome.leave_out(name, error)


def group(frames: Iterator[FrameInWork], size: int) -> Iterator[list[FrameInWork]]:
    """Batches of at most `size` frames, alike in their pictures' size and in what they lack.

    Frames of a rare size wait for others of theirs, but not for ever: memory is bounded.
    """
    groups: dict[tuple[object, bool], list[FrameInWork]] = {}
    for frame in frames:
        key = frame.rgb.shape, frame.zoe is None
        groups.setdefault(key, []).append(frame)
        if len(groups[key]) == size:
            yield groups.pop(key)
        elif sum(map(len, groups.values())) >= 2 * size + FRAMES_AHEAD:
            yield groups.pop(next(iter(groups)))  # the one that waited longest
    yield from groups.values()


def with_zoe(
    batches: Iterator[list[FrameInWork]], zoedepth: ZoeDepth
) -> Iterator[list[FrameInWork]]:
    """Batches in which every frame has its pseudo depth."""
    for batch in batches:
        if batch[0].zoe is not None:
            yield batch
            continue
        depths = zoedepth.predict(np.stack([frame.rgb for frame in batch]))
        yield [replace(frame, zoe=zoe, new=True) for frame, zoe in zip(batch, depths, strict=True)]


def in_threads(
    engines: ThreadPoolExecutor,
    batches: Iterator[list[FrameInWork]],
    job: Inference,
    pool: ThreadPoolExecutor,
) -> Iterator[list[Future[str]]]:
    """Refine batches, a few ahead of their taker; yields the writing of each one's files."""
    refining: deque[Future[list[Future[str]]]] = deque()
    for batch in batches:
        refining.append(engines.submit(refine_batch, batch, job, pool))
        if len(refining) > BATCHES_AHEAD * job.engine.parallel_calls:
            yield refining.popleft().result()
    for future in refining:
        yield future.result()


def refine_batch(
    batch: list[FrameInWork], job: Inference, pool: ThreadPoolExecutor
) -> list[Future[str]]:
    """Run the engine; returns the writing of each frame's files."""
    rgb = np.stack([frame.rgb for frame in batch])
    zoe = np.stack([frame.zoe for frame in batch])  # type: ignore[misc]
    return [
        pool.submit(write_frame, frame, depth_u16, job)
        for frame, depth_u16 in zip(batch, job.engine(rgb, zoe), strict=True)
    ]


def show(progress: "tqdm[object]", outcome: InferenceSummary) -> None:
    """Bring the bar up to date; its rate is that of frames refined now."""
    progress.initial = len(outcome.kept) + len(outcome.left_out)
    progress.update(progress.initial + len(outcome.written) - progress.n)


def write_frame(frame: FrameInWork, depth_u16: np.ndarray, job: Inference) -> str:
    """Write a frame's files; returns its name."""
    if frame.new and isinstance(job.pseudo, ZoeDepth) and frame.zoe is not None:
        job.pseudo.write(frame.name, frame.inputs, frame.zoe)
    job.results.write(frame.name, frame.inputs, frame.rgb, depth_u16)
    return frame.name


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The items of an iterator that a thread of its own runs, a few ahead of their taker."""
    end = object()
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(BATCHES_AHEAD))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item  # type: ignore[misc]


def engine_pool(engine: Engine) -> ThreadPoolExecutor:
    """Threads to call an engine in; where there are several, each call uses one core."""
    threads = engine.parallel_calls

    def limit_threads() -> None:
        if threads > 1:
            torch.set_num_threads(1)  # of torch, for calls from this thread

    return ThreadPoolExecutor(threads, initializer=limit_threads)
