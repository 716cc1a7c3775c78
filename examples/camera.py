"""The loop of a robot: read a camera, run a depth network and the refiner, print distances.

python examples/camera.py runs/demo/latest/best --camera 0
python examples/camera.py refiner.ts --camera clip.mp4 --depth-model folder
"""

import argparse
import sys
import time
from collections.abc import Iterator

import cv2
import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.cli import run_command
from zoerefine.depth.data.intrinsics import checked_intrinsics
from zoerefine.depth.data.networks import load_network
from zoerefine.depth.infer import Refiner
from zoerefine.depth.infer.same_network import check_source


def main() -> None:
    """Print one line per frame."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", help="a bundle from `zoerefine export`")
    parser.add_argument("--camera", default="0", help="number of a camera (0), or a video file")
    parser.add_argument(
        "--depth-model",
        default="Intel/zoedepth-nyu-kitti",
        help="a folder, a name on the Hugging Face hub, or an ONNX file; default: %(default)s",
    )
    parser.add_argument(
        "--any-pseudo",
        action="store_true",
        help="accept another network than the refiner was trained on",
    )
    parser.add_argument(
        "--intrinsics",
        type=float,
        nargs=4,
        metavar=("FX", "FY", "CX", "CY"),
        help="of the camera, in pixels, for an ONNX network with a focal term",
    )
    parser.add_argument(
        "--trust", action="store_true", help="accept a bundle from elsewhere that is a program"
    )
    args = parser.parse_args()

    refiner = Refiner.load(args.bundle, args.trust)
    network = load_network(args.depth_model)
    if not args.any_pseudo:
        check_source(args.bundle, refiner.manifest, network.source)
    own = checked_intrinsics(args.intrinsics, "--intrinsics") if args.intrinsics else None
    for number, rgb in enumerate(pictures(args.camera)):
        start = time.perf_counter()
        zoe_m = network.predict(rgb[None], own)[0]  # float32 [H, W], metres
        refined_m = refiner(rgb, zoe_m)
        elapsed_ms = (time.perf_counter() - start) * 1000
        print(
            f"frame {number}: {distance_ahead(refined_m):.2f} m ahead "
            f"(pseudo depth {distance_ahead(zoe_m):.2f} m), {elapsed_ms:.0f} ms",
            flush=True,
        )


def pictures(camera: str) -> Iterator[np.ndarray]:
    """The pictures of a camera or a video, uint8 [H, W, 3], RGB, until it ends."""
    capture = cv2.VideoCapture(int(camera) if camera.isdigit() else camera)
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # the newest picture, not every picture
    if not capture.isOpened():
        raise UserError(f"there is no camera or video {camera}")
    while True:
        more, bgr = capture.read()
        if not more:
            return
        yield cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


def distance_ahead(depth_m: np.ndarray) -> float:
    """Distance in metres to the nearest object: the 5th percentile in the middle of the picture."""
    height, width = depth_m.shape
    middle = depth_m[height // 3 : -(height // 3), width // 3 : -(width // 3)]
    valid = middle[middle > 0]
    return float(np.percentile(valid, 5)) if valid.size else float("nan")


if __name__ == "__main__":
    sys.exit(run_command(main))
