"""Draws a contact sheet of a data set: the picture and both depths of one frame a clip."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.images import read_rgb, write_png
from zoerefine.base.files.own_files import MADE_BY
from zoerefine.depth.data.cache.decode import read_depth, read_zoe
from zoerefine.depth.data.dataset import Dataset, Frame, evenly_spaced
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.pictures import color_bar, depth_colors, label_bar

SHEET_CLIPS = 24
SHEET_COLUMNS = 4
THUMB = (120, 160)  # rows, columns of one picture on the contact sheet
USUAL_RANGE_M = 10.0  # the colour scale where no true depth is valid


def contact_sheet(dataset: Dataset, path: Path) -> None:
    """Draw the first frame of up to `SHEET_CLIPS` clips: picture, true and pseudo depth.

    All depths have one colour scale, up to the 99th percentile of the true depth.
    """
    firsts = {frame.clip: frame for frame in reversed(dataset.frames)}
    frames = sorted(firsts.values(), key=lambda f: (f.scene, f.clip))
    cells = [_read_cell(frame, dataset) for frame in evenly_spaced(frames, SHEET_CLIPS)]
    depths_m = np.concatenate([true_m[true_m > 0] for _, _, true_m, _ in cells])
    farthest_m = float(np.percentile(depths_m, 99)) if len(depths_m) else USUAL_RANGE_M
    drawn = [_draw_cell(*cell, farthest_m) for cell in cells]
    drawn += [np.full_like(drawn[0], 255)] * (-len(drawn) % SHEET_COLUMNS)
    rows = [np.hstack(drawn[i : i + SHEET_COLUMNS]) for i in range(0, len(drawn), SHEET_COLUMNS)]
    colored = partial(depth_colors, farthest_m=farthest_m)
    bar = color_bar(rows[0].shape[1], (0.0, farthest_m), "depth, m; grey: invalid", colored)
    write_png(path, np.vstack([*rows, bar]), {"Software": MADE_BY})


def _read_cell(frame: Frame, dataset: Dataset) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """The clip's name, RGB uint8 [2 H, 2 W, 3], true and pseudo depth, float [H, W] in metres.

    What cannot be read is a black picture, or depth of invalid pixels: the report names it.
    """
    rows, columns = THUMB
    rgb: np.ndarray = np.zeros((2 * rows, 2 * columns, 3), np.uint8)
    true_m, zoe_m = np.zeros(THUMB), np.zeros(THUMB)
    encoding = dataset.depth_encoding
    with suppress(UserError):
        rgb = cv2.resize(read_rgb(frame.rgb), rgb.shape[1::-1], interpolation=cv2.INTER_AREA)
    with suppress(UserError):
        if frame.depth is not None:
            true_m = _thumb(read_depth(frame.depth, encoding)) * encoding.u16_unit_m
    with suppress(UserError):
        if frame.zoe is not None:
            zoe_m = _thumb(read_zoe(frame.zoe)) * ZOE_UNIT_M
    return f"{frame.scene} / {frame.clip}", rgb, true_m, zoe_m


def _thumb(values: np.ndarray) -> np.ndarray:
    return cv2.resize(values, THUMB[::-1], interpolation=cv2.INTER_NEAREST)


def _draw_cell(
    name: str, rgb: np.ndarray, true_m: np.ndarray, zoe_m: np.ndarray, farthest_m: float
) -> np.ndarray:
    """The picture above, true and pseudo depth side by side below; each with its name. RGB."""
    columns = THUMB[1]
    depths = [depth_colors(depth_m, farthest_m) for depth_m in (true_m, zoe_m)]
    names = label_bar([name], 2 * columns), label_bar(["true depth", "pseudo depth"], columns)
    return np.vstack([names[0], rgb, names[1], np.hstack(depths)])
