"""Draw frames of a data set, a row each: RGB with points, depth before and after, errors.

    python examples/real_frame.py FOLDER CLIP/NAME... --source "name, licence" --out picture.jpg

The points are simulated from the true depth: 50 a frame, with 3% noise, as benchmarks/points.py
does. Nothing is trained. README.md shows the picture of

    python examples/real_frame.py ROOMS tum_fr1_office_0/0035 tum_fr3_cabinet_0/0010 --out ...
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from zoerefine.base.errors import UserError, run_command
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.dataset import Dataset, Frame
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.metric_points import MetricPoints
from zoerefine.depth.pictures import DARK, WHITE, depth_colors, error_colors, font
from zoerefine.depth.points.simulate import PointSimulation, simulated, truth_and_picture
from zoerefine.depth.points.spread import spread_points

TILES = "RGB, 50 measured points", "predicted depth", "corrected", "error before", "error after"
TILE = 320, 240  # pixels, width and height
BAR = 34  # pixels
POINT_COLOR = 255, 220, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="a data set with true and pseudo depth")
    parser.add_argument("frames", nargs="+", metavar="CLIP/NAME")
    parser.add_argument("--source", default="", help="a line below: whose pictures, which licence")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    dataset = open_dataset(args.folder)
    rows = [frame_row(dataset, name) for name in args.frames]
    picture = np.vstack([bar(TILES), *rows, bar([args.source])] if args.source else rows)
    Image.fromarray(picture).save(args.out, quality=88)


def frame_row(dataset: Dataset, name: str) -> np.ndarray:
    """A frame's five pictures with the mean relative errors, uint8 [H, W, 3]."""
    frame = next((f for f in dataset.frames if f"{f.clip}/{f.name}" == name), None)
    if frame is None or frame.zoe is None or frame.depth is None:
        raise UserError(f"{dataset.root} has no frame {name} with true and pseudo depth")
    rgb, truth_m, pseudo_m, corrected_m, points = corrected(dataset, frame, name)
    farthest = float(np.percentile(truth_m[truth_m > 0], 98))
    for x, y in zip(points.x, points.y, strict=True):
        cv2.circle(rgb, (round(x), round(y)), 2, POINT_COLOR, -1)
    tiles = [
        rgb,
        depth_colors(pseudo_m, farthest),
        depth_colors(corrected_m, farthest),
        error_colors(pseudo_m, truth_m),
        error_colors(corrected_m, truth_m),
    ]
    errors = [f"{mean_error(depth_m, truth_m):.0%} off" for depth_m in (pseudo_m, corrected_m)]
    pictures = np.hstack([cv2.resize(one, TILE, interpolation=cv2.INTER_AREA) for one in tiles])
    return np.vstack([pictures, bar(["", "", "", *errors])])


def corrected(
    dataset: Dataset, frame: Frame, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, MetricPoints]:
    """RGB, true, pseudo and corrected depth in metres, and the points."""
    assert frame.zoe is not None
    truth_m, rgb = truth_and_picture(dataset, frame)
    stored_m = (read_zoe(frame.zoe) * ZOE_UNIT_M).astype(np.float32)
    size = truth_m.shape[1], truth_m.shape[0]
    resized = cv2.resize(stored_m, size, interpolation=cv2.INTER_LINEAR)
    pseudo_m = resized.astype(np.float32)
    points = simulated(PointSimulation(), truth_m, rgb, name)
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
