"""A robot's loop: a camera's pictures, ZoeDepth, the refiner, and how far ahead is free.

python examples/camera.py runs/demo/latest/best/engine/refiner.ts --camera 0
python examples/camera.py refiner.ts --camera clip.mp4 --zoedepth folder-with-zoedepth
"""

import argparse
import time
from collections.abc import Iterator

import cv2
import numpy as np

from zoerefine.data.zoedepth import load_model, predict
from zoerefine.infer import Refiner


def main() -> None:
    """Print a line a frame."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", help="engine/refiner.ts of a run")
    parser.add_argument("--camera", default="0", help="number of a camera (0), or a video file")
    parser.add_argument("--zoedepth", default="Intel/zoedepth-nyu-kitti", help="folder or name")
    args = parser.parse_args()

    refiner = Refiner.load(args.bundle)
    zoedepth = load_model(args.zoedepth)
    for number, rgb in enumerate(pictures(args.camera)):
        start = time.perf_counter()
        zoe_m = predict(zoedepth, rgb[None])[0]  # float32 [H, W], metres
        refined_m = refiner(rgb, zoe_m)
        spent_ms = (time.perf_counter() - start) * 1000
        print(
            f"frame {number}: {nearest(refined_m):.2f} m ahead "
            f"(ZoeDepth {nearest(zoe_m):.2f} m), {spent_ms:.0f} ms",
            flush=True,
        )


def pictures(camera: str) -> Iterator[np.ndarray]:
    """What the camera sees, uint8 [H, W, 3], RGB, until it ends."""
    capture = cv2.VideoCapture(int(camera) if camera.isdigit() else camera)
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # a robot wants the newest picture, not every one
    if not capture.isOpened():
        raise SystemExit(f"error: no camera or video {camera}")
    while True:
        there, bgr = capture.read()
        if not there:
            return
        yield cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


def nearest(depth_m: np.ndarray) -> float:
    """The nearest of what lies ahead: the middle third of the picture, but for its nearest 5%."""
    height, width = depth_m.shape
    ahead = depth_m[height // 3 : -(height // 3), width // 3 : -(width // 3)]
    measured = ahead[ahead > 0]
    return float(np.percentile(measured, 5)) if measured.size else float("nan")


if __name__ == "__main__":
    main()
