"""Draw frames of a data set, a row each: RGB with points, depth before and after, errors.

    python examples/real_frame.py FOLDER CLIP/NAME... --source "name, licence" --out picture.jpg

The points are simulated from the true depth: 50 a frame, with 3% noise, as benchmarks/points.py
does. Nothing is trained. README.md shows the picture of

    python examples/real_frame.py ROOMS tum_fr1_office_0/0035 tum_fr3_cabinet_0/0010 --out ...

and docs/stream.md the loop, of depth that points correct and `--stream` makes steady, of

    python examples/real_frame.py ROOMS 'tum_fr3_cabinet_0/*' --loop --out docs/images/stream.webp
"""

import argparse
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from zoerefine.base.errors import UserError
from zoerefine.cli import run_command
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.dataset import Dataset, Frame
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.metric_points import MetricPoints
from zoerefine.depth.infer.stream import Memory, step
from zoerefine.depth.pictures import DARK, WHITE, depth_colors, error_colors, font
from zoerefine.depth.points.simulate import PointSimulation, simulated, truth_and_picture
from zoerefine.depth.points.spread import spread_points

TILES = "RGB, 50 measured points", "predicted depth", "corrected", "error before", "error after"
TILE = 320, 240  # pixels, width and height
BAR = 34  # pixels
LOOP_MS, LOOP_SCALE, LOOP_QUALITY = 250, 0.7, 50  # milliseconds a frame; quality of WebP
POINT_COLOR = 255, 220, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="a data set with true and pseudo depth")
    parser.add_argument("frames", nargs="+", metavar="CLIP/NAME", help="or patterns")
    parser.add_argument("--loop", action="store_true",
                        help="an animation (webp) of consecutive frames, made steady")  # fmt: skip
    parser.add_argument("--source", default="", help="a line below: whose pictures, which licence")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    dataset = open_dataset(args.folder)
    frames = [frame for pattern in args.frames for frame in matching(dataset, pattern)]
    below = [bar([args.source])] if args.source else []
    if args.loop:
        stream, titles = Stream(), bar([*TILES[:2], "corrected, steady", *TILES[3:]])
        rows = [frame_row(dataset, frame, stream) for frame in frames]
        save_loop(args.out, [np.vstack([titles, one, *below]) for one in rows])
        return
    picture = np.vstack([bar(TILES), *(frame_row(dataset, frame) for frame in frames), *below])
    Image.fromarray(picture).save(args.out, quality=88)


def matching(dataset: Dataset, pattern: str) -> list[Frame]:
    """Frames with true and pseudo depth. Raises `UserError` where a pattern names none."""
    frames = [
        frame
        for frame in dataset.frames
        if frame.zoe and frame.depth and fnmatchcase(f"{frame.clip}/{frame.name}", pattern)
    ]
    if not frames:
        raise UserError(f"{dataset.root} has no frame {pattern} with true and pseudo depth")
    return frames


class Stream:
    """What `infer --stream` does to one frame after the other, in the first one's colours."""

    def __init__(self) -> None:
        self.memory: Memory | None = None
        self.farthest_m = 0.0

    def __call__(self, rgb: np.ndarray, depth_m: np.ndarray) -> np.ndarray:
        depth_u16 = np.round(depth_m / ZOE_UNIT_M).astype(np.uint16)
        steady_u16, self.memory = step(self.memory, rgb, depth_u16)
        return (steady_u16 * ZOE_UNIT_M).astype(np.float32)


def save_loop(path: Path, pictures: Sequence[np.ndarray]) -> None:
    """Write an endless animation, smaller than the pictures."""
    height, width = (round(side * LOOP_SCALE) for side in pictures[0].shape[:2])
    images = [Image.fromarray(picture).resize((width, height)) for picture in pictures]
    settings: dict[str, Any] = {
        "quality": LOOP_QUALITY,
        "method": 6,
        "duration": LOOP_MS,
        "loop": 0,
    }
    images[0].save(path, save_all=True, append_images=images[1:], **settings)


def frame_row(dataset: Dataset, frame: Frame, stream: Stream | None = None) -> np.ndarray:
    """A frame's five pictures with the mean relative errors, uint8 [H, W, 3]."""
    rgb, truth_m, pseudo_m, corrected_m, points = corrected(dataset, frame)
    farthest_m = float(np.percentile(truth_m[truth_m > 0], 98))
    if stream is not None:
        corrected_m = stream(rgb, corrected_m)
        farthest_m = stream.farthest_m = stream.farthest_m or farthest_m
    for x, y in zip(points.x, points.y, strict=True):
        cv2.circle(rgb, (round(x), round(y)), 2, POINT_COLOR, -1)
    tiles = [
        rgb,
        depth_colors(pseudo_m, farthest_m),
        depth_colors(corrected_m, farthest_m),
        error_colors(pseudo_m, truth_m),
        error_colors(corrected_m, truth_m),
    ]
    errors = [f"{mean_error(depth_m, truth_m):.0%} off" for depth_m in (pseudo_m, corrected_m)]
    pictures = np.hstack([cv2.resize(one, TILE, interpolation=cv2.INTER_AREA) for one in tiles])
    return np.vstack([pictures, bar(["", "", "", *errors])])


def corrected(
    dataset: Dataset, frame: Frame
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, MetricPoints]:
    """RGB, true, pseudo and corrected depth in metres, and the points."""
    assert frame.zoe is not None
    truth_m, rgb = truth_and_picture(dataset, frame)
    stored_m = (read_zoe(frame.zoe) * ZOE_UNIT_M).astype(np.float32)
    size = truth_m.shape[1], truth_m.shape[0]
    resized = cv2.resize(stored_m, size, interpolation=cv2.INTER_LINEAR)
    pseudo_m = resized.astype(np.float32)
    points = simulated(PointSimulation(), truth_m, rgb, f"{frame.clip}/{frame.name}")
    return rgb.copy(), truth_m, pseudo_m, spread_points(pseudo_m, points), points


def mean_error(depth_m: np.ndarray, truth_m: np.ndarray) -> float:
    """AbsRel of a frame."""
    valid = (truth_m > 0) & (depth_m > 0)
    return float(np.mean(np.abs(depth_m[valid] - truth_m[valid]) / truth_m[valid]))


def bar(texts: Sequence[str]) -> np.ndarray:
    """A dark bar with texts that share the width of a row."""
    width = TILE[0] * len(TILES)
    image = Image.new("RGB", (width, BAR), DARK)
    draw = ImageDraw.Draw(image)
    large = ImageFont.truetype(font().path, 17)
    for column, text in enumerate(texts):
        draw.text((width // len(texts) * column + 10, BAR / 2), text, WHITE, large, anchor="lm")
    return np.asarray(image)


if __name__ == "__main__":
    raise SystemExit(run_command(main))
