"""Pictures of an inference for people: one frame before and after, or all of them as a video."""

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
from zoerefine.files import replacing
from zoerefine.infer.pipeline import Inference
from zoerefine.infer.sources import FrameSource, Shot
from zoerefine.pictures import depth_colors, panel
from zoerefine.progress import track


def draw_middle(path: Path, job: Inference, done: set[str], truth: Path | None) -> None:
    """Draw the middle one of the frames that are done, against its truth where that is there."""
    if not done:
        raise UserError("no frame was refined, so there is none to draw")
    shot = next(finished(job.source, {sorted(done)[len(done) // 2]}))
    made = job.engine.manifest
    true = truth / f"{shot.name}.png" if truth else None
    panel(
        path,
        shot.read(),
        read_zoe(job.pseudo.path(shot.name)) * ZOE_UNIT_M,
        read_zoe(job.results.depth(shot.name)) * ZOE_UNIT_M,
        read_truth_m(true, stated_encoding(true.parent)) if true and true.exists() else None,
        "pseudo depth",
        f"{shot.name}   |   refiner of {made['data']}   |   commit {made['commit'][:8]}, "
        f"{made['engine']} {made['precision']}",
    )


def film(path: Path, job: Inference, done: set[str], farthest_m: float) -> None:
    """Write a video of RGB, pseudo and refined depth side by side, in the order of the source.

    Every frame is brought to the first one's size.

    Args:
        path: ends in .mp4.
        farthest_m: the depth colours' far end, the same in all frames.

    Raises:
        UserError: there is no frame, or the video cannot be written.
    """
    if not done:
        raise UserError("no frame was refined, so there is none to film")
    with replacing(path) as temporary:
        part = temporary.with_suffix(".mp4")  # OpenCV knows a format by its suffix
        try:
            record(part, job, done, farthest_m)
            part.rename(temporary)
        finally:
            part.unlink(missing_ok=True)


def record(path: Path, job: Inference, done: set[str], farthest_m: float) -> None:
    """Encode the frames into a file."""
    writer: Any = None
    for shot in track(finished(job.source, done), len(done), "filming", "frame"):
        files = job.pseudo.path(shot.name), job.results.depth(shot.name)
        depths = [depth_colors(read_zoe(file) * ZOE_UNIT_M, farthest_m) for file in files]
        pictures = [shot.read(), *depths]
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


def finished(source: FrameSource, done: set[str]) -> Iterator[Shot]:
    """The frames of a source that have results."""
    with suppress(UserError):  # a video that was cut short; it was named before
        for shot in source.shots():
            if shot.name in done:
                yield shot
