"""Encoders of `infer --video`: PyAV's H.264, as the command uses it, and OpenCV's VP9.

Both sides encode the same moving pictures in one run, in turn. The error is the mean difference of
the decoded pictures, of 255. OpenCV's packages have no encoder of H.264; of the formats that they
have, VP9 is the only one that browsers play.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import av
import cv2
import numpy as np
from common.report import options, report, row

from zoerefine.depth.infer.video import QUALITY

SIZE, QUICK_SIZE = (1920, 548), (960, 284)  # of three pictures with labels and colour bar
FRAMES, QUICK_FRAMES = 24, 12
FPS, ROUNDS = 24, 3

Encoder = Callable[[Path, Sequence[np.ndarray]], None]


def main() -> None:
    """Print the table, and write it where asked."""
    args = options(__doc__).parse_args()
    size, count = (QUICK_SIZE, QUICK_FRAMES) if args.quick else (SIZE, FRAMES)
    frames = moving_pictures(size, count)
    encoders: dict[str, Encoder] = {"PyAV, H.264": with_pyav, "OpenCV, VP9": with_opencv}
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(1 if args.quick else ROUNDS):
            for name, encode in encoders.items():
                start = time.perf_counter()
                encode(Path(folder) / f"{name}.mp4", frames)
                seconds[name].append(time.perf_counter() - start)
        for name in encoders:
            path = Path(folder) / f"{name}.mp4"
            rows += [
                row(f"{name}: speed", count / median(seconds[name]), "frames/s"),
                row(f"{name}: size", path.stat().st_size / 2**10, "KiB"),
                row(f"{name}: error", error_of(path, frames), "of 255"),
            ]
    ours, theirs = seconds.values()
    ratio = median(b / a for a, b in zip(ours, theirs, strict=True))
    report([*rows, row("VP9's time over H.264's", ratio, "x", at_least=2.0)], args)


def moving_pictures(size: tuple[int, int], count: int) -> list[np.ndarray]:
    """A blurred pattern that moves by two pixels a frame, uint8 [H, W, 3] each."""
    width, height = size
    noise = np.random.default_rng(0).integers(0, 256, (height, width + 2 * count, 3), np.uint8)
    wide = cv2.GaussianBlur(noise, (0, 0), 6)
    wide = cv2.normalize(wide, wide, 0, 255, cv2.NORM_MINMAX)
    return [np.ascontiguousarray(wide[:, 2 * i : 2 * i + width]) for i in range(count)]


def with_pyav(path: Path, frames: Sequence[np.ndarray]) -> None:
    """As `zoerefine.depth.infer.video` encodes."""
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS, options=QUALITY)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="bgr24")))
        container.mux(stream.encode())


def with_opencv(path: Path, frames: Sequence[np.ndarray]) -> None:
    """VP9, with the settings that OpenCV chooses; it offers no others."""
    size = frames[0].shape[1::-1]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"vp09"), FPS, size)
    for frame in frames:
        writer.write(frame)
    writer.release()


def error_of(path: Path, frames: Sequence[np.ndarray]) -> float:
    """The mean absolute difference of the decoded pictures."""
    capture = cv2.VideoCapture(str(path))
    errors = [np.abs(capture.read()[1].astype(int) - frame).mean() for frame in frames]
    capture.release()
    return float(np.mean(errors))


if __name__ == "__main__":
    main()
