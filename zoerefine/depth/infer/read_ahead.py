"""Frames that are decoded before they are needed, in batches of one picture size."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from zoerefine.base.errors import UserError
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.infer.inference import (
    ClipOrder,
    FrameInWork,
    Inference,
    InferenceSummary,
    Place,
)
from zoerefine.depth.infer.sources import FrameSource, SourceFrame
from zoerefine.depth.points.measured import refuse_points_in_other_unit

# A waiting frame has 9 bytes a pixel: RGB, pseudo depth, refined depth and spread. While an engine
# refines it on the CPU, it takes about 70. With this number a limit of a quarter of the free memory
# holds in both cases.
BYTES_PER_PIXEL = 30


class FrameMemory:
    """The bytes of the frames in memory; a context manager.

    One thread takes memory, any thread frees it. A frame larger than the limit is let in alone.

    Args:
        limit: of the bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._closed = False
        self._changed = threading.Condition()

    def __enter__(self) -> "FrameMemory":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True  # after an error nobody frees memory any more
            self._changed.notify_all()

    def has_room(self, nbytes: int) -> bool:
        """Whether `take` would return at once."""
        return self.used + nbytes <= self.limit or not self.used

    def take(self, nbytes: int) -> None:
        """Count a frame that is going to be read; waits if there is no room.

        Then it waits until half of the memory is free, so that the next batches are large.
        """
        with self._changed:
            if not self.has_room(nbytes):
                half = max(0, self.limit // 2 - nbytes)
                self._changed.wait_for(lambda: self.used <= half or self._closed)
            self.used += nbytes

    def free(self, nbytes: int) -> None:
        """Count off a frame that is written, or could not be read."""
        with self._changed:
            self.used -= nbytes
            self._changed.notify_all()


FRAMES_AHEAD = 16  # decoded before the engine takes them, or waiting in an incomplete batch


LeaveOut = Callable[[str, object], None]  # records a frame's name, and why it cannot be refined


@dataclass(frozen=True)
class FrameToRead:
    """A frame that is known, but not decoded.

    Attributes:
        nbytes: that `FrameMemory` counts for it.
        read: decodes it; raises `UserError` if it cannot be read.
    """

    name: str
    nbytes: int
    read: Callable[[], FrameInWork]


@dataclass(frozen=True)
class FrameBeingRead:
    """A frame that the pool decodes."""

    name: str
    nbytes: int
    reading: Future[FrameInWork]

    def unless_broken(self, leave_out: LeaveOut, memory: FrameMemory) -> Iterator[FrameInWork]:
        """The frame, or nothing if it could not be read, which is recorded."""
        try:
            frame = self.reading.result()
        except UserError as error:
            leave_out(self.name, error)
            memory.free(self.nbytes)
        else:
            yield frame


def read_ahead(
    frames: Iterable[FrameToRead],
    pool: ThreadPoolExecutor,
    leave_out: LeaveOut,
    memory: FrameMemory,
) -> Iterator[FrameInWork | None]:
    """Frames in order, decoded by the pool before they are needed.

    None comes before a wait for memory: frames must not wait for others then.
    """
    waiting: deque[FrameBeingRead] = deque()
    for frame in frames:
        if not memory.has_room(frame.nbytes):
            while waiting:
                yield from waiting.popleft().unless_broken(leave_out, memory)
            yield None
        memory.take(frame.nbytes)
        waiting.append(FrameBeingRead(frame.name, frame.nbytes, pool.submit(frame.read)))
        if len(waiting) > FRAMES_AHEAD:
            yield from waiting.popleft().unless_broken(leave_out, memory)
    for one in waiting:
        yield from one.unless_broken(leave_out, memory)


def frames_to_read(job: Inference, summary: InferenceSummary) -> Iterator[FrameToRead]:
    """The frames of an inference that are not done yet, in order."""
    clips = ClipOrder() if job.results.with_stream else None
    for frame in readable_frames(job.source, summary):
        inputs = job.inputs_of(frame)
        place = clips.place_of(frame, inputs) if clips else None
        summary.inputs[frame.name] = place.inputs if place else inputs
        if job.results.is_done(frame.name, summary.inputs[frame.name]):
            summary.kept.append(frame.name)
            if clips:
                clips.keep(frame)
            continue
        nbytes = frame.pixels() * BYTES_PER_PIXEL
        read = partial(read_frame, frame, inputs, job, nbytes, place)
        yield FrameToRead(frame.name, nbytes, read)


def readable_frames(source: FrameSource, summary: InferenceSummary) -> Iterator[SourceFrame]:
    """The frames of a source, until it cannot be read any further."""
    try:
        yield from source.frames()
    except UserError as error:
        summary.leave_out(source.label, error)


def read_frame(
    frame: SourceFrame, inputs: str, job: Inference, nbytes: int, place: Place | None
) -> FrameInWork:
    """Decode a frame. Raises `UserError` for a damaged file, or two different sizes."""
    rgb, zoe = frame.read(), job.pseudo.read(frame.name, inputs)
    if zoe is not None and zoe.shape != rgb.shape[:2]:
        sizes = " and ".join(f"{a.shape[1]}x{a.shape[0]}" for a in (rgb, zoe))
        raise UserError(f"the picture and {job.pseudo.path(frame.name)} differ in size: {sizes}")
    points = job.points_of(frame.name, *rgb.shape[:2])
    if job.points and zoe is not None and len(points):
        file = str(job.points.path(frame.name))
        refuse_points_in_other_unit(file, points, zoe * ZOE_UNIT_M)
    return FrameInWork(frame.name, inputs, rgb, zoe, points, nbytes, place=place)


def batches_of_one_size(
    frames: Iterator[FrameInWork | None], size: int
) -> Iterator[list[FrameInWork]]:
    """Batches of at most `size` frames of one picture size, all with or all without pseudo depth.

    Frames of a rare size wait for others, but the number of waiting frames is bounded, and after
    None no frame waits.
    """
    groups: dict[tuple[object, bool], list[FrameInWork]] = {}
    for frame in frames:
        if frame is None:
            yield from groups.values()
            groups.clear()
            continue
        key = frame.rgb.shape, frame.zoe is None
        groups.setdefault(key, []).append(frame)
        if len(groups[key]) == size:
            yield groups.pop(key)
        elif sum(map(len, groups.values())) >= 2 * size + FRAMES_AHEAD:
            yield groups.pop(next(iter(groups)))  # the one that has waited longest
    yield from groups.values()
