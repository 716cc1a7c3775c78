"""How many frames a video has, and which of them are damaged.

OpenCV returns a damaged frame as if it were good, with what the decoder has put in its place, and
does not say so. It also skips frames, so that later ones have other numbers. So PyAV reads the
video once before: FFmpeg's readers and decoders report errors, many of them only in its log.
That reading also counts the frames: containers may state no number, or that of a longer video
(Matroska with a variable rate, MP4 that was trimmed without encoding).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2

from zoerefine.base.errors import needed

INCOMPLETE = "EOI missing"  # a cut JPEG, or one of a camera that never writes its end
HARMLESS = "unable to decode APP fields"  # of a JPEG's notes: many webcams write wrong ones


def load_av() -> Any:
    """The module of PyAV. Raises `UserError` where it is not installed."""
    with needed("videos need PyAV", "video"):
        import av  # for videos alone: pictures are refined without it
        import av.logging
    return av


@dataclass(frozen=True)
class VideoCheck:
    """What reading a whole video has found.

    Attributes:
        count: of its frames, as OpenCV returns them.
        damaged: the numbers of the frames that FFmpeg reports as damaged.
        has_errors: whether FFmpeg reports any error.
    """

    count: int
    damaged: frozenset[int]
    has_errors: bool


def check_video(path: Path, stated: int = 0) -> VideoCheck:
    """Read a video to its end.

    Frames that may be predicted from a damaged one, up to the next key frame, count as damaged,
    too; so do all that follow where frames are lost, since their numbers would be wrong.
    No frame is damaged in a video that PyAV cannot open. Raises `UserError` without PyAV.

    Args:
        stated: the number of frames by OpenCV, which is not counted again where PyAV agrees.
    """
    av = load_av()
    keys: dict[int, bool] = {}  # whether it is a key frame, by time, in the order of decoding
    damaged: set[int] = set()
    suspect: set[int] = set()
    lost: list[int] = []  # times of frames before which the file is damaged
    unseen: set[int] = set()  # times of frames that are decoded, and not shown
    in_header = decoded = 0  # frames; the header has 0 where it has no number
    try:
        with errors_of(av) as errors, opened(av, path) as container:
            stream = container.streams.video[0]
            in_header = stream.frames
            stream.codec_context.options = {"err_detect": "crccheck+explode"}
            stream.codec_context.thread_type = "NONE"  # otherwise an error is another packet's
            for packet in container.demux(stream):
                time = packet.pts if packet.pts is not None else packet.dts
                if any(level <= av.logging.ERROR for level, _, _ in errors):
                    lost.append(time if time is not None else max(keys, default=0))
                if time is not None:
                    keys[time] = packet.is_keyframe
                if packet.is_discard:
                    unseen.add(time)
                errors.clear()
                try:
                    frames = packet.decode()
                    decoded += len(frames)
                    damaged |= {frame.pts for frame in frames if frame.is_corrupt}
                except av.InvalidDataError:
                    damaged.add(time)
                for level, _, text in errors:
                    if level <= av.logging.ERROR and not text.startswith(HARMLESS):
                        damaged.add(time)
                    elif text.startswith(INCOMPLETE):
                        suspect.add(time)
                errors.clear()
    except (av.FFmpegError, OSError, IndexError):
        pass
    damaged |= predicted_from(damaged, keys)
    shown = sorted(keys.keys() - unseen)
    is_whole = decoded == stated and not damaged | suspect
    count = stated if is_whole else count_frames(path)
    is_short = in_header > len(shown) and not unseen  # the header counts what is not shown
    if (damaged | suspect) and (count != len(shown) or is_short or has_gap(shown)):
        lost.extend(damaged | suspect)
    first_lost = min(lost, default=None)
    found = {
        number
        for number, time in enumerate(shown)
        if time in damaged or (first_lost is not None and time >= first_lost)
    }
    found |= set(range(len(shown), count)) if lost else set()
    return VideoCheck(count, frozenset(found), bool(damaged or lost))


def predicted_from(damaged: set[int], keys: dict[int, bool]) -> set[int]:
    """The times of frames that may be predicted from damaged ones.

    After the next key frame these are only frames that are shown before it.
    """
    found, is_damaged, shown_after = set(), False, None
    for time, is_key in keys.items():
        if time in damaged:
            is_damaged, shown_after = True, None
        elif is_key and is_damaged:
            is_damaged, shown_after = False, time
        elif is_damaged or (shown_after is not None and time < shown_after):
            found.add(time)
    return found


def has_gap(times: list[int]) -> bool:
    """Whether frames do not follow one another evenly, but for rounding."""
    steps = [after - before for before, after in pairwise(times)]
    return bool(steps) and max(steps) > 1.5 * min(steps)


@contextmanager
def opened(av: Any, path: Path) -> Iterator[Any]:
    """A video, of which as little as possible has been read: errors of that have no place."""
    with av.open(str(path), options={"probesize": "32", "analyzeduration": "0"}) as container:
        if container.streams.video:
            yield container
            return
    with av.open(str(path)) as container:
        yield container


@contextmanager
def errors_of(av: Any) -> Iterator[list[tuple[int, str, str]]]:
    """FFmpeg's warnings and errors in this thread: level, part and text each."""
    level, skips = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.WARNING)
    av.logging.set_skip_repeated(False)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(level)
        av.logging.set_skip_repeated(skips)


def count_frames(path: Path) -> int:
    """How many frames OpenCV finds."""
    capture, count = cv2.VideoCapture(str(path)), 0
    while capture.grab():
        count += 1
    capture.release()
    return count
