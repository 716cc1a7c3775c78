"""Pictures of an inference for people: one frame before and after, or all frames as a video."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from zoerefine.data.decode import read_truth_m, read_zoe
from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.data.readers import stated_encoding
from zoerefine.errors import UserError
from zoerefine.exporting.outputs import SPREAD_UNITS
from zoerefine.files import replacing
from zoerefine.image_files import read_values
from zoerefine.infer.inference import Inference
from zoerefine.infer.sources import FrameSource, SourceFrame
from zoerefine.own_files import VIDEO_BOX
from zoerefine.pictures import depth_colors, panel, spread_colors
from zoerefine.progress import track


def draw_middle_frame(path: Path, job: Inference, done: set[str], truth: Path | None) -> None:
    """Draw the middle one of the finished frames, compared with its true depth if there is any."""
    frame = next(finished_frames(job.source, {sorted(done)[len(done) // 2]}))
    manifest = job.engine.manifest
    true = truth / f"{frame.name}.png" if truth else None
    panel(
        path,
        frame.read(),
        read_zoe(job.pseudo.path(frame.name)) * ZOE_UNIT_M,
        read_zoe(job.results.depth(frame.name)) * ZOE_UNIT_M,
        read_truth_m(true, stated_encoding(true.parent)) if true and true.exists() else None,
        "pseudo depth",
        f"{frame.name}   |   refiner trained on {manifest['data']}   |   commit "
        f"{manifest['commit'][:8]}, {manifest['engine']} {manifest['precision']}",
        spread=read_spread(job, frame.name),
    )


def read_spread(job: Inference, name: str) -> np.ndarray | None:
    """The spread of a frame in log depth, float64 [H, W]; None if it is not written."""
    if not job.results.with_confidence:
        return None
    return read_values(job.results.confidence(name)) / SPREAD_UNITS


def write_video(path: Path, job: Inference, done: set[str], farthest_m: float) -> None:
    """Write a video of RGB, pseudo and refined depth side by side, in the order of the source.

    With confidence the spread follows, up to a factor of 2 either way.

    Every frame is resized to the size of the first one.

    Args:
        path: ends in .mp4.
        farthest_m: the depth at the far end of the colours, the same for all frames.

    Raises:
        UserError: the video cannot be written.
    """
    with replacing(path) as temporary:
        part = temporary.with_suffix(".mp4")  # OpenCV takes the format from the suffix
        try:
            encode(part, job, done, farthest_m)
            check_whole(part, path, len(done))
            with open(part, "ab") as file:
                file.write(VIDEO_BOX)
            part.rename(temporary)
        finally:
            part.unlink(missing_ok=True)


def remove_parts(path: Path) -> None:
    """Remove what a killed command left of a drawing or video beside it."""
    killed = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.(tmp|mp4)")
    for other in path.parent.iterdir():
        if killed.fullmatch(other.name):
            other.unlink(missing_ok=True)


def check_whole(part: Path, path: Path, frames: int) -> None:
    """Raises `UserError` for a video that lost its end: OpenCV says nothing of a full disk."""
    capture = cv2.VideoCapture(str(part))
    try:
        found = int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) if capture.isOpened() else 0
    finally:
        capture.release()
    if found < frames:
        raise UserError(
            f"{path} cannot be written: the video has {found} of {frames} frames; is the disk full?"
        )


def encode(path: Path, job: Inference, done: set[str], farthest_m: float) -> None:
    """Encode the finished frames into a file."""
    writer: Any = None
    frames = track(finished_frames(job.source, done), len(done), "writing the video", "frame")
    for frame in frames:
        files = job.pseudo.path(frame.name), job.results.depth(frame.name)
        depths = [depth_colors(read_zoe(file) * ZOE_UNIT_M, farthest_m) for file in files]
        pictures = [frame.read(), *depths]
        if (spread := read_spread(job, frame.name)) is not None:
            pictures.append(spread_colors(spread))
        if writer is None:
            height, width = pictures[0].shape[:2]
            size = len(pictures) * width, height
            writer = cv2.VideoWriter(
                str(path), cv2.VideoWriter.fourcc(*"mp4v"), job.source.fps, size
            )
            if not writer.isOpened():
                raise UserError(f"OpenCV cannot write a video to {path.parent}")
        side_by_side = np.hstack([cv2.resize(picture, (width, height)) for picture in pictures])
        writer.write(cv2.cvtColor(side_by_side, cv2.COLOR_RGB2BGR))
    writer.release()


def finished_frames(source: FrameSource, done: set[str]) -> Iterator[SourceFrame]:
    """The frames of a source that have results."""
    with suppress(UserError):  # a video that is cut short was reported when it was refined
        for frame in source.frames():
            if frame.name in done:
                yield frame
