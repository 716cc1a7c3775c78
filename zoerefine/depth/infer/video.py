"""A video of RGB, pseudo and refined depth side by side, as H.264, which every browser plays.

PyAV encodes: OpenCV's packages have no H.264 encoder, and their VP9 takes twenty times as long.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import replacing
from zoerefine.base.files.own_files import VIDEO_BOX
from zoerefine.base.progress import track
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.infer.inference import Done, Inference
from zoerefine.depth.infer.pictures import DepthRange, finished_frames, read_spread
from zoerefine.depth.infer.sources import SourceFrame
from zoerefine.depth.infer.video_damage import load_av
from zoerefine.depth.pictures import (
    COLOR_BAR_HEIGHT,
    LABEL_HEIGHT,
    WIDEST_SPREAD,
    color_bar,
    depth_colors,
    label_bar,
    spread_colors,
)
from zoerefine.lab.analysis.pictures.style import load_matplotlib

LEAST_WIDTH = 240  # pixels of a picture; smaller ones are enlarged, so that labels fit
LABELS = "RGB", "pseudo depth", "refined depth", "spread of refined"
LONGEST_SIDE = 16384  # pixels, of x264
QUALITY = {"crf": "18", "preset": "veryfast"}  # of x264; lower crf is better


def check_encoder() -> None:
    """Fails before hours of work where a package that draws or encodes is not installed."""
    load_av()
    load_matplotlib()


class VideoPicture:
    """The parts that all pictures of a video share: sizes, labels, colour bars.

    Args:
        first: the first frame, uint8 [H, W, 3]; all others get its size.
        shown: the range of the depths' colours.
        with_spread: whether a fourth picture shows the spread.

    Raises:
        UserError: a video of this size cannot be encoded.
    """

    def __init__(self, first: np.ndarray, shown: DepthRange, with_spread: bool) -> None:
        height, width = first.shape[:2]
        scale = max(1, math.ceil(LEAST_WIDTH / width))
        self.size = even(width * scale), even(height * scale)
        whole = self.size[0] * (3 + with_spread), self.size[1] + LABEL_HEIGHT + COLOR_BAR_HEIGHT
        if max(whole) > LONGEST_SIDE:
            raise UserError(
                f"--video: pictures of {width}x{height} give a video of {whole[0]}x{whole[1]} "
                f"pixels, and the encoder takes at most {LONGEST_SIDE} a side"
            )
        self.header = label_bar(LABELS[: 3 + with_spread], self.size[0])
        ends = shown.near_m, shown.far_m
        colored = partial(depth_colors, farthest_m=shown.far_m, nearest_m=shown.near_m)
        bars = [color_bar(2 * self.size[0], ends, "depth, m", colored)]
        if with_spread:
            bars.append(color_bar(self.size[0], (0, WIDEST_SPREAD), "in log depth", spread_colors))
        self.bars = np.hstack(bars)

    def draw(self, name: str, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """One picture of the video, uint8 [height, width, 3], RGB; both sizes are even.

        Args:
            name: of the frame.
            pictures: uint8 [H, W, 3] of any sizes, one for each label.
        """
        smooth, sharp = cv2.INTER_LINEAR, cv2.INTER_NEAREST
        resized = [
            cv2.resize(picture, self.size, interpolation=sharp if number else smooth)
            for number, picture in enumerate(pictures)
        ]
        footer = np.hstack([label_bar([name], self.size[0], COLOR_BAR_HEIGHT), self.bars])
        return np.vstack([self.header, np.hstack(resized), footer])


def even(size: int) -> int:
    """The encoder stores colours for two by two pixels."""
    return max(2, size // 2 * 2)


def write_video(
    path: Path, job: Inference, done: Done, shown: DepthRange, fps: float | None = None
) -> None:
    """Write the finished frames in the order of the source, with labels and colour bars.

    With confidence the spread follows, up to a factor of 2 either way.

    Args:
        path: ends in .mp4.
        shown: the range of the depths' colours.
        fps: frames per second; None: the source's.

    Raises:
        UserError: the video cannot be written.
    """
    av = load_av()

    with replacing(path) as temporary:
        try:
            encode(temporary, job, done, shown, fps or job.source.fps)
        except (av.FFmpegError, OSError) as error:
            raise UserError(f"{path} cannot be written: {error}; is the disk full?") from None
        check_whole(temporary, path, len(done))
        with open(temporary, "ab") as file:
            file.write(VIDEO_BOX)


def encode(path: Path, job: Inference, done: Done, shown: DepthRange, fps: float) -> None:
    """Encode the finished frames into a file."""
    av = load_av()

    rate = Fraction(fps).limit_denominator(1001)
    layout: VideoPicture | None = None
    frames = track(finished_frames(job.source, done), len(done), "writing the video", "frame")
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream: Any = container.add_stream("libx264", rate=rate, options=QUALITY)
        stream.pix_fmt = "yuv420p"  # the only one that all browsers play
        for frame in frames:
            pictures = pictures_of(frame, job, done[frame.name], shown)
            if layout is None:
                layout = VideoPicture(pictures[0], shown, job.results.with_confidence)
                stream.height, stream.width = layout.draw(frame.name, pictures).shape[:2]
            picture = layout.draw(frame.name, pictures)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def pictures_of(
    frame: SourceFrame, job: Inference, inputs: str, shown: DepthRange
) -> list[np.ndarray]:
    """RGB, both depths and, with confidence, the spread: uint8 [H, W, 3] each."""
    depths_m = [depth * ZOE_UNIT_M for depth in job.depths(frame.name, inputs)]
    pictures = [depth_colors(depth_m, shown.far_m, shown.near_m) for depth_m in depths_m]
    spread = read_spread(job, frame.name, inputs)
    return [frame.read(), *pictures, *([] if spread is None else [spread_colors(spread)])]


def check_whole(part: Path, path: Path, frames: int) -> None:
    """Raises `UserError` for a video that lost frames."""
    capture = cv2.VideoCapture(str(part))
    try:
        found = int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) if capture.isOpened() else 0
    finally:
        capture.release()
    if found < frames:
        raise UserError(
            f"{path} cannot be written: the video has {found} of {frames} frames; is the disk full?"
        )
