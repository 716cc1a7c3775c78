"""Refine the depth of a bag: reading, decoding, engine and writing overlap, as in `infer`.

    reading thread    bag -> depth messages with their pictures -> the pool decodes, in order
    engine threads    refine batches of one size
    the pool          makes messages of refined depth
    this thread       writes them to the new bag, in order

Only messages that wait for one of these are in memory.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.messages import warn
from zoerefine.depth.data.metric_points import NO_POINTS
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.infer.inference import (
    BYTES_PER_PIXEL,
    FrameInWork,
    FrameMemory,
    FrameToRead,
    require_one_size,
)
from zoerefine.depth.infer.pipeline import refine_in_threads, stages_of
from zoerefine.depth.ros.bag_files import CAMERA_INFO, IMAGE, BagReader, BagWriter, typestore
from zoerefine.depth.ros.image_messages import depth_fields, depth_of, rgb_of, size_of
from zoerefine.depth.ros.stamp_pairs import (
    CameraTopics,
    DepthFrame,
    StampedMessage,
    in_seconds,
    paired,
    with_stamps,
)

MAX_LINES = 10  # about frames that are left out


@dataclass(frozen=True)
class BagJob:
    """What is refined, by what, and into which topics.

    Attributes:
        tolerance_ns: the largest difference between the stamps of depth and picture.
        encoding: of refined depth, 32FC1 or 16UC1.
        depth_topic, info_topic: of the new bag.
    """

    engine: Engine
    bag: BagReader
    topics: CameraTopics
    tolerance_ns: int
    encoding: str
    depth_topic: str
    info_topic: str


@dataclass(frozen=True)
class BagFrame(FrameInWork):
    """A frame with the messages that it comes from."""

    messages: DepthFrame | None = None


# Serialized messages: topic, when the depth that they come from was recorded, and the bytes.
Messages = list[tuple[str, int, bytes | memoryview]]


@dataclass
class BagSummary:
    """What happened to the depth messages of a bag.

    Attributes:
        unpaired: without a picture within the tolerance.
        left_out: could not be read.
        closest_ns: the smallest difference between the stamps of an unpaired depth message and a
            picture; None where there was no picture.
    """

    written: int = 0
    unpaired: int = 0
    left_out: int = 0
    closest_ns: int | None = None
    seconds: float = 0.0

    def leave_out(self, name: str, reason: object) -> None:
        """Count a depth message that cannot be refined, and say why, the first times."""
        self.left_out += 1
        if self.left_out <= MAX_LINES:
            warn(f"left out {name}: {reason}")
        if self.left_out == MAX_LINES:
            warn("further messages that are left out are only counted")

    def leave_unpaired(self, gap_ns: int | None) -> None:
        """Count a depth message without a picture within the tolerance."""
        self.unpaired += 1
        known = [gap for gap in (gap_ns, self.closest_ns) if gap is not None]
        self.closest_ns = min(known, default=None)

    def __str__(self) -> str:
        rate = f", {self.written / self.seconds:.1f} frames/s" if self.written else ""
        counts = f"{self.written} depth messages refined, {self.unpaired} without a picture"
        return f"{counts}, {self.left_out} left out{rate}"


def refine_bag(job: BagJob, writer: BagWriter, batch: int) -> BagSummary:
    """Refine every depth message that has a picture, `batch` frames of one size at a time.

    Raises `UserError` for a damaged bag, and where nothing could be refined.
    """
    summary, topics = BagSummary(), job.topics
    writer.add_topic(job.depth_topic, IMAGE, job.bag.qos_profiles(topics.depth))
    if topics.info:
        writer.add_topic(job.info_topic, CAMERA_INFO, job.bag.qos_profiles(topics.info))
    start = time.perf_counter()
    with stages_of(job.engine, 1, job.bag.counts[topics.depth]) as stages:
        batches = stages.batches(frames_to_read(job, summary), summary.leave_out, batch)
        make = partial(make_messages, job=job, memory=stages.memory)
        for making in refine_in_threads(stages, batches, make):
            for messages in making:
                for message in messages.result():
                    writer.write(*message)
                summary.written += 1
            stages.show(summary.written, summary.unpaired + summary.left_out)
        stages.show(summary.written, summary.unpaired + summary.left_out)
    summary.seconds = time.perf_counter() - start
    if not summary.written:
        raise UserError(f"{job.bag.path}: no depth was refined; {why_none(job, summary)}")
    return summary


def frames_to_read(job: BagJob, summary: BagSummary) -> Iterator[FrameToRead]:
    """The depth messages with a picture within the tolerance, in order.

    Raises as `with_stamps`.
    """
    messages = job.bag.messages(job.topics.names)
    for frame in paired(
        with_stamps(messages, job.topics, job.bag.path), job.topics, job.bag.counts
    ):
        gap_ns = abs(frame.depth.stamp_ns - frame.picture.stamp_ns) if frame.picture else None
        if gap_ns is None or gap_ns > job.tolerance_ns:
            summary.leave_unpaired(gap_ns)
            continue
        name = f"depth of {in_seconds(frame.depth.stamp_ns)} s"
        nbytes = pixels_of(frame) * BYTES_PER_PIXEL
        yield FrameToRead(name, nbytes, partial(decode, frame, name, nbytes))


def pixels_of(frame: DepthFrame) -> int:
    """The number of pixels, without decoding; 0 where it cannot be known."""
    try:
        width, height = size_of(frame.depth.content) or (0, 0)
    except UserError:  # decoding says it, too
        return 0
    return width * height


def decode(frame: DepthFrame, name: str, nbytes: int) -> BagFrame:
    """Decode picture and depth. Raises `UserError` for wrong messages, or two different sizes."""
    assert frame.picture
    rgb, zoe = rgb_of(frame.picture.content), depth_of(frame.depth.content)
    require_one_size(rgb, zoe, "its depth")
    return BagFrame(name, "", rgb, zoe, NO_POINTS, nbytes, messages=frame)


def make_messages(
    frame: FrameInWork, outputs: list[np.ndarray], job: BagJob, memory: FrameMemory
) -> Messages:
    """The messages of a frame with this refined depth, uint16 [H, W]."""
    assert isinstance(frame, BagFrame) and frame.messages
    try:
        depth = frame.messages.depth
        types = typestore()
        message = types.types[IMAGE](
            header=depth.content.header, **depth_fields(outputs[0], job.encoding)
        )
        found: Messages = [
            (job.depth_topic, depth.recorded_ns, types.serialize_cdr(message, IMAGE))
        ]
        if frame.messages.info:
            raw = info_bytes(frame.messages.info, depth)
            found.append((job.info_topic, depth.recorded_ns, raw))
        return found
    finally:
        memory.free(frame.nbytes)


def info_bytes(info: StampedMessage, depth: StampedMessage) -> bytes | memoryview:
    """The calibration of a depth message, with its stamp, so that receivers can pair them."""
    if info.stamp_ns == depth.stamp_ns:
        return info.raw
    header = replace(info.content.header, stamp=depth.content.header.stamp)
    raw: memoryview = typestore().serialize_cdr(replace(info.content, header=header), CAMERA_INFO)
    return raw


def why_none(job: BagJob, summary: BagSummary) -> str:
    """Why no depth message could be refined."""
    if summary.left_out:
        return f"{summary.left_out} left out for the reasons above"
    if summary.closest_ns is None:
        return "there was no picture beside any depth message"
    return (
        f"no picture has the stamp of a depth message within {job.tolerance_ns / 1e9:g} s, the "
        f"nearest is {summary.closest_ns / 1e9:g} s away: give --tolerance"
    )
