"""Recordings in ScanNet's folders, as its exporter writes them.

<scene>/color/<n>.jpg                    RGB
<scene>/depth/<n>.png                    16 bits, millimetres, 0 = invalid; of another size
<scene>/pseudo/<n>.png                   optional: pseudo depth, 16 bits, metres = value / 256
<scene>/intrinsic/intrinsic_color.txt    the matrix of the colour camera, 4x4 or 3x3

The data folder contains such folders, or is one. `scene0000_00` and `scene0000_01` are two
recordings, so two clips, of the scene `scene0000`.

Depth is assumed to show the field of view of its picture, on a coarser grid (640x480 for
1296x968). So a depth or pseudo depth file may differ in size from its picture. It is brought to
the picture's grid by nearest neighbour, before any other resizing: each picture pixel takes the
value of the depth pixel in which its centre lies. No depths are averaged by this.
"""

import re
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.depth.data.dataset import Frame
from zoerefine.depth.data.depth_codec import MILLIMETRES
from zoerefine.depth.data.intrinsics import Intrinsics, checked_intrinsics
from zoerefine.depth.data.layouts import recordings

RGB, DEPTH = "color", "depth"
INTRINSICS = "intrinsic/intrinsic_color.txt"
NAME_DIGITS = 6  # names are padded, so that their order is that of their numbers


def scene_of(recording: str) -> str:
    """The scene of a recording: its name without the last `_NN`."""
    return re.sub(r"_\d\d$", "", recording)


def read_recording(recording: Path) -> tuple[list[Frame], list[str]]:
    """Its frames by their numbers, and a line for each file without a partner.

    Raises `UserError` for two frames of one number, such as 1 and 01.
    """
    rgb = recordings.files_by_stem(recording / RGB, ".jpg")
    depth, pseudo = (
        recordings.files_by_stem(recording / name, ".png") for name in (DEPTH, recordings.PSEUDO)
    )
    intrinsics = _intrinsics(recording / INTRINSICS)
    frames = [
        Frame(
            recording.name,
            stem.zfill(NAME_DIGITS),
            scene_of(recording.name),
            path,
            depth[stem],
            pseudo.get(stem),
            None,
            intrinsics,
            sizes_may_differ=True,
        )
        for stem, path in rgb.items()
        if stem in depth
    ]
    numbered: dict[str, Path] = {}
    for frame in frames:
        other = numbered.setdefault(frame.name, frame.rgb)
        if other != frame.rgb:
            raise UserError(f"{other} and {frame.rgb} have one number: rename or remove one")
    alone = [
        f"{path} has no depth file {stem}.png" for stem, path in rgb.items() if stem not in depth
    ]
    return sorted(frames, key=lambda frame: frame.name), alone + recordings.without_picture(
        rgb, RGB, depth, pseudo
    )


def _intrinsics(path: Path) -> Intrinsics | None:
    rows = recordings.number_rows(path)
    if not rows:
        return None
    if len(rows) < 3 or any(len(row) < 3 for row in rows[:3]):
        raise UserError(f"{path} is no camera matrix: expected 3 or 4 rows of as many numbers")
    (fx, _, cx, *_), (_, fy, cy, *_) = rows[:2]
    return checked_intrinsics((fx, fy, cx, cy), str(path))


LAYOUT = recordings.Recordings(
    "<scene>/color with <scene>/depth",
    (RGB, DEPTH),
    "real frames in ScanNet's folders",
    MILLIMETRES,
    read_recording,
)
