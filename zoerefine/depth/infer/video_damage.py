"""Which frames of a video are damaged.

OpenCV returns a damaged frame as if it were good, with what the decoder has put in its place, and
does not say so. So PyAV decodes the video once before: its decoders report errors.
"""

from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError


def load_av() -> Any:
    """The module of PyAV. Raises `UserError` where it is not installed."""
    try:
        import av  # for videos alone: pictures are refined without it
    except ModuleNotFoundError:
        raise UserError("videos need PyAV: pip install 'zoerefine[video]'") from None
    return av


def damaged_frames(path: Path) -> frozenset[int]:
    """The numbers of the frames that a decoder reports as damaged.

    Frames that are predicted from a damaged one, up to the next key frame, count as damaged, too.
    Empty for a video that PyAV cannot open. Raises `UserError` without PyAV.
    """
    av = load_av()
    keys: dict[int, bool] = {}  # whether it is a key frame, by a frame's time
    damaged: set[int] = set()
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.codec_context.options = {"err_detect": "explode"}
            stream.codec_context.thread_type = "NONE"  # otherwise an error is another packet's
            for packet in container.demux(stream):
                time = packet.pts if packet.pts is not None else packet.dts
                if time is not None:
                    keys[time] = packet.is_keyframe
                try:
                    damaged |= {frame.pts for frame in packet.decode() if frame.is_corrupt}
                except av.InvalidDataError:
                    damaged.add(time)
    except (av.FFmpegError, OSError, IndexError):
        pass
    found, is_damaged = set(), False
    for number, (time, is_key) in enumerate(sorted(keys.items())):
        is_damaged = time in damaged or (is_damaged and not is_key)
        if is_damaged:
            found.add(number)
    return frozenset(found)
