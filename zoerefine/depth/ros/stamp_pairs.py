"""Depth messages paired with the nearest picture by the stamps of their headers, in one pass.

A depth message waits until the picture nearest to it is known: until a picture with the same or a
later stamp has come. Then every picture is dropped that is older than the one before this stamp,
since no later depth needs it. So only few messages are in memory. A picture may serve several depth
messages. Calibrations (CameraInfo) are found in the same way.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.messages import warn

# Messages of one topic that may wait. Beyond it, where a topic pauses, the oldest one waits no
# longer: at 640x480 these are ten seconds.
MAX_WAITING_BYTES = 2**28
FIELDS_BYTES = 2**12  # that a message takes beside its serialized bytes, or less


@dataclass(frozen=True)
class CameraTopics:
    """The topics of a camera in a bag.

    Attributes:
        info: with calibrations of the depth; None where there is no such topic.
    """

    picture: str
    depth: str
    info: str | None

    @property
    def names(self) -> list[str]:
        return [self.picture, self.depth, *([self.info] if self.info else [])]


@dataclass(frozen=True)
class StampedMessage:
    """A message of a bag.

    Attributes:
        stamp_ns: of its header.
        recorded_ns: when it was recorded.
        content: the message.
        raw: its serialized bytes.
    """

    topic: str
    stamp_ns: int
    recorded_ns: int
    content: Any
    raw: bytes

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return len(self.raw) + FIELDS_BYTES


@dataclass(frozen=True)
class DepthFrame:
    """A depth message with the nearest picture and calibration; None where there is none."""

    depth: StampedMessage
    picture: StampedMessage | None
    info: StampedMessage | None


class NearestStamps:
    """The messages of one topic that a depth message may still need.

    Args:
        count: how many messages the topic has in all.
    """

    def __init__(self, count: int) -> None:
        self.left = count
        self.messages: deque[StampedMessage] = deque()
        self.nbytes = 0

    def add(self, message: StampedMessage) -> None:
        self.left -= 1
        self.messages.append(message)
        self.nbytes += message.nbytes
        while self.nbytes > MAX_WAITING_BYTES and len(self.messages) > 1:
            self._drop_oldest()

    def is_known(self, stamp_ns: int) -> bool:
        """Whether no message that comes later can be nearer to a stamp."""
        return self.left <= 0 or bool(self.messages and self.messages[-1].stamp_ns >= stamp_ns)

    def nearest(self, stamp_ns: int) -> StampedMessage | None:
        """The message nearest to a stamp, the later one of two; None where there is none."""
        latest_first = reversed(self.messages)
        return min(latest_first, key=lambda one: abs(one.stamp_ns - stamp_ns), default=None)

    def drop_before(self, stamp_ns: int) -> None:
        """Drop what is not needed for this stamp or a later one."""
        while len(self.messages) > 1 and self.messages[1].stamp_ns <= stamp_ns:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.nbytes -= self.messages.popleft().nbytes


def paired(
    messages: Iterable[StampedMessage], topics: CameraTopics, counts: dict[str, int]
) -> Iterator[DepthFrame]:
    """Every depth message, in the order in which they were recorded.

    Args:
        messages: of these topics, in that order; the stamps of each topic ascend.
        counts: how many messages each topic has.
    """
    others = topics.picture, topics.info
    streams = [NearestStamps(counts[topic] if topic else 0) for topic in others]
    by_topic = dict(zip(others, streams, strict=True))
    waiting: deque[StampedMessage] = deque()
    waiting_bytes = 0

    def next_frame() -> DepthFrame:
        depth = waiting.popleft()
        picture, info = (stream.nearest(depth.stamp_ns) for stream in streams)
        for stream in streams:
            stream.drop_before(depth.stamp_ns)
        return DepthFrame(depth, picture, info)

    for message in messages:
        if message.topic == topics.depth:
            waiting.append(message)
            waiting_bytes += message.nbytes
        else:
            by_topic[message.topic].add(message)
        while waiting and (
            waiting_bytes > MAX_WAITING_BYTES
            or all(stream.is_known(waiting[0].stamp_ns) for stream in streams)
        ):
            waiting_bytes -= waiting[0].nbytes
            yield next_frame()
    while waiting:
        yield next_frame()


def with_stamps(
    messages: Iterable[StampedMessage], topics: CameraTopics, bag: Path
) -> Iterator[StampedMessage]:
    """The same messages. Says once per topic where two in a row have one stamp.

    Raises `UserError` where that stamp is 0: without stamps, depth has no picture of its own.
    """
    last: dict[str, int] = {}
    repeated: set[str] = set()
    for one in messages:
        is_same = one.topic != topics.info and last.get(one.topic) == one.stamp_ns
        last[one.topic] = one.stamp_ns
        if is_same and not one.stamp_ns:
            raise UserError(
                f"{bag}: the stamps of {one.topic} are 0: they cannot say which picture "
                "belongs to which depth; record with a driver that sets them"
            )
        if is_same and one.topic not in repeated:
            repeated.add(one.topic)
            warn(
                f"{bag}: two messages of {one.topic} in a row have the stamp "
                f"{in_seconds(one.stamp_ns)} s: where they differ, depth may get the wrong picture"
            )
        yield one


def in_seconds(stamp_ns: int) -> str:
    return "{}.{:09d}".format(*divmod(stamp_ns, 10**9))
