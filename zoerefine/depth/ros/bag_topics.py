"""Which topics of a bag are pictures, depth and calibrations of one camera."""

from collections.abc import Callable
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.depth.ros.bag_files import CAMERA_INFO, COMPRESSED_IMAGE, IMAGE, BagReader
from zoerefine.depth.ros.image_messages import (
    COLOR_ENCODINGS,
    encoding_of,
    holds_depth,
    holds_picture,
    is_compressed,
    size_of,
)
from zoerefine.depth.ros.stamp_pairs import CameraTopics

PICTURE_OPTION, DEPTH_OPTION, INFO_OPTION = "--image-topic", "--depth-topic", "--info-topic"


def find_topics(
    bag: BagReader, picture: str | None, depth: str | None, info: str | None
) -> CameraTopics:
    """The topics that were asked for, or else the only ones with such messages.

    Raises `UserError` where several fit, none fits, one that was asked for does not fit, or the
    first picture and the first depth differ in size.
    """
    first: dict[str, Any] = {}
    for topic, kind in bag.types.items():
        message = bag.first(topic) if kind in (IMAGE, COMPRESSED_IMAGE) else None
        if message:
            first[topic] = message.content
    colors = f"{', '.join(COLOR_ENCODINGS)}, compressed JPEG or PNG"
    picture = choose(bag, first, picture, holds_picture, PICTURE_OPTION, f"pictures ({colors})")
    depth = choose(bag, first, depth, holds_depth, DEPTH_OPTION, "depth (16UC1, 32FC1)")
    check_sizes(bag, {topic: first[topic] for topic in (picture, depth)})
    return CameraTopics(picture, depth, info_topic(bag, depth, is_compressed(first[depth]), info))


def choose(
    bag: BagReader,
    first: dict[str, Any],
    asked: str | None,
    fits: Callable[[Any], bool],
    option: str,
    what: str,
) -> str:
    """The topic that was asked for, or else the only one whose first message fits."""
    known = ", ".join(f"{topic} ({encoding_of(one)})" for topic, one in first.items()) or "none"
    if asked is not None:
        if asked not in first:
            raise UserError(
                f"{option}: {bag.path} has no images on {asked}; topics with images: {known}"
            )
        if not fits(first[asked]):
            encoding = encoding_of(first[asked])
            raise UserError(f"{option}: {asked} has the encoding {encoding!r}, expected is {what}")
        return asked
    fitting = [topic for topic, message in first.items() if fits(message)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise UserError(f"{bag.path} has no topic with {what}; topics with images: {known}")
    raise UserError(
        f"{bag.path} has several topics with {what.partition(' (')[0]}: choose one of "
        f"{', '.join(fitting)} by {option}"
    )


def check_sizes(bag: BagReader, messages: dict[str, Any]) -> None:
    """Raises `UserError` if images differ in size, where it is known without decoding them."""
    sizes: dict[str, tuple[int, int]] = {}
    for topic, message in messages.items():
        try:
            size = size_of(message)
        except UserError as error:
            raise UserError(f"{bag.path}, first message of {topic}: {error}") from None
        if size:
            sizes[topic] = size
    if len({*sizes.values()}) > 1:
        listed = " and ".join(f"{topic} {w}x{h}" for topic, (w, h) in sizes.items())
        raise UserError(
            f"{bag.path}: the topics differ in size, {listed}: record depth that is aligned to the "
            "pictures, or choose other topics"
        )


def info_topic(bag: BagReader, depth: str, compressed: bool, asked: str | None) -> str | None:
    """The topic with the depth's calibrations: the one asked for, or `camera_info` beside depth."""
    infos = [topic for topic, kind in bag.types.items() if kind == CAMERA_INFO]
    if asked is not None:
        if asked not in infos:
            listed = ", ".join(infos) or "none"
            raise UserError(
                f"{INFO_OPTION}: {bag.path} has no CameraInfo on {asked}; such topics: {listed}"
            )
        return asked
    base = depth.rpartition("/")[0] if compressed else depth  # without the name of the transport
    beside = f"{base.rpartition('/')[0]}/camera_info"
    return beside if beside in infos else None
