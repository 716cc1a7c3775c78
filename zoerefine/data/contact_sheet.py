"""Draws a contact sheet of a data set: the picture and both depths of one frame a clip."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.decode import read_depth, read_zoe
from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.errors import UserError
from zoerefine.image_files import read_rgb, write_png
from zoerefine.own_files import MADE_BY
from zoerefine.pictures import depth_colors

SHEET_CLIPS = 24
SHEET_COLUMNS = 4
THUMB = (120, 160)  # rows, columns of one picture on the contact sheet
USUAL_RANGE_M = 10.0  # the colour scale where no true depth is valid


@dataclass(frozen=True)
class SheetCell:
    """One clip on the contact sheet: RGB uint8 [2 H, 2 W, 3], depths float [H, W] in metres.

    What could not be read is black: the report names it.
    """

    name: str
    rgb: np.ndarray
    true_m: np.ndarray
    zoe_m: np.ndarray


def contact_sheet(dataset: Dataset, path: Path) -> None:
    """Draw the first frame of up to `SHEET_CLIPS` clips: picture, true and pseudo depth.

    All depths have one colour scale, up to the 99th percentile of the true depth.
    """
    firsts = {frame.clip: frame for frame in reversed(dataset.frames)}
    frames = sorted(firsts.values(), key=lambda f: (f.scene, f.clip))
    step = -(-len(frames) // SHEET_CLIPS)
    cells = [_read_cell(frame, dataset) for frame in frames[::step]]
    depths_m = np.concatenate([cell.true_m[cell.true_m > 0] for cell in cells])
    farthest_m = float(np.percentile(depths_m, 99)) if len(depths_m) else USUAL_RANGE_M
    drawn = [_draw_cell(cell, farthest_m) for cell in cells]
    drawn += [np.full_like(drawn[0], 255)] * (-len(drawn) % SHEET_COLUMNS)
    rows = [np.hstack(drawn[i : i + SHEET_COLUMNS]) for i in range(0, len(drawn), SHEET_COLUMNS)]
    write_png(path, np.vstack(rows), {"Software": MADE_BY})


def _read_cell(frame: Frame, dataset: Dataset) -> SheetCell:
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
    return SheetCell(f"{frame.scene} / {frame.clip}", rgb, true_m, zoe_m)


def _thumb(values: np.ndarray) -> np.ndarray:
    return cv2.resize(values, THUMB[::-1], interpolation=cv2.INTER_NEAREST)


def _draw_cell(cell: SheetCell, farthest_m: float) -> np.ndarray:
    """The picture above, true and pseudo depth side by side below; with labels. RGB."""
    true, pseudo = depth_colors(cell.true_m, farthest_m), depth_colors(cell.zoe_m, farthest_m)
    true[cell.true_m == 0] = pseudo[cell.zoe_m == 0] = 0
    _label(cell.rgb, cell.name)
    _label(true, f"depth, 0-{farthest_m:.1f} m")
    _label(pseudo, "pseudo depth")
    return np.vstack([cell.rgb, np.hstack([true, pseudo])])


def _label(picture: np.ndarray, text: str) -> None:
    """Write white text on a darkened bar at the top of a picture, in place."""
    picture[:22] //= 3
    white, font = (255, 255, 255), cv2.FONT_HERSHEY_SIMPLEX
    cv2.putText(picture, text, (6, 16), font, 0.42, white, 1, cv2.LINE_AA)
