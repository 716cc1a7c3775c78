"""A folder with a `frames.csv`, one line a frame, in UTF-8.

Columns: clip, rgb, depth, pseudo; optional: objects, points (metric points, see docs/points.md),
scene, classes (of the clip's moving objects, `dog+toy car`), speed (of these, whole m/s),
depth_unit_m, and the camera's intrinsics fx, fy, cx, cy (all four or none, in pixels of the
picture file).

Paths are relative to the folder. Depth is a PNG in millimetres, of 16 bits; with `depth_unit_m`
(metres for one unit, the same in every line) it is in that unit, and all files have 8 bits or all
have 16. Pseudo depth is a 16-bit PNG, metres = value / 256. In both 0 marks an invalid pixel.
Without a scene column each clip is a scene of its own. A file belongs to one scene.
"""

import codecs
import csv
import math
import os
from collections.abc import Mapping
from pathlib import Path

from zoerefine.base.errors import UserError, number
from zoerefine.base.files.atomic import replacing
from zoerefine.base.files.images import read_values
from zoerefine.depth.data.dataset import Clip, Dataset, Frame
from zoerefine.depth.data.depth_codec import MILLIMETRES, DepthEncoding
from zoerefine.depth.data.frame_names import in_order
from zoerefine.depth.data.intrinsics import Intrinsics, checked_intrinsics
from zoerefine.depth.data.layouts.csv_table import CsvTable, Row
from zoerefine.depth.data.metric_points import refuse_depth_as_points

MARK = "frames.csv"
NEEDED = ("clip", "depth", "pseudo", "rgb")
SPEED_DIGITS = 6
INTRINSICS = ("fx", "fy", "cx", "cy")
OPTIONAL = {"objects", "points", "scene", "classes", "speed", "depth_unit_m", *INTRINSICS}


def matches(root: Path) -> bool:
    return (root / MARK).is_file()


def read(root: Path) -> Dataset:
    """Read the list, check that its files exist, and find the encoding of its depth.

    Raises `UserError`, with the line, for a list that cannot be used.
    """
    frames: list[Frame] = []
    clips: dict[str, Clip] = {}
    units: dict[str, int] = {}
    scenes: dict[str, tuple[str, int]] = {}
    has_scene: dict[bool, int] = {}
    for line, row in _rows(root):
        frame = _frame(root, row, line)
        frames.append(frame)
        _refuse_two_scenes(scenes, frame, root / MARK, line)
        _add_clip(clips, _clip(root, row, frame, line), f"{root / MARK} line {line}")
        units.setdefault(row.get("depth_unit_m", ""), line)
        has_scene.setdefault(bool(row.get("scene")), line)
    if len(has_scene) > 1:
        raise UserError(
            f"{root / MARK} line {has_scene[False]}: scene is empty, and line {has_scene[True]} "
            "has one, so one room could be trained and tested on: fill the column, or leave it out"
        )
    _refuse_duplicates(root, frames)
    return Dataset(
        root=root,
        label=f"real frames listed in {root.name}/{MARK}",
        pseudo_label="pseudo depth",
        depth_encoding=_encoding(root, units, frames),
        frames=in_order(frames),
        clips=tuple(clips[name] for name in sorted(clips)),
    )


def pseudo_path(root: Path, frame: Frame) -> Path:
    """Where a frame's pseudo depth belongs if the list names no file for it.

    Raises `UserError` where a link leads out of the folder.
    """
    path = root / "pseudo" / frame.clip / f"{frame.name}.png"
    if not path.resolve().is_relative_to(root.resolve()):
        raise UserError(f"{path} leads out of {root}: replace the link by a folder")
    return path


def enter_pseudo(root: Path, paths: Mapping[Path, Path]) -> None:
    """Enter pseudo depth into the list: its file by the picture that it belongs to."""
    rows = [row for _, row in _rows(root)]
    for row in rows:
        path = paths.get(root / row["rgb"])
        if path and not row["pseudo"]:
            row["pseudo"] = path.relative_to(root).as_posix()
    data = (root / MARK).read_bytes()
    encoding = "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"
    with (
        replacing(root / MARK) as temporary,
        open(temporary, "w", encoding=encoding, newline="") as file,
    ):
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _rows(root: Path) -> CsvTable:
    """The lines of the list; an absent value is empty."""
    return CsvTable(root / MARK, NEEDED, OPTIONAL, rewritten=True)


def _encoding(root: Path, units: Mapping[str, int], frames: list[Frame]) -> DepthEncoding:
    """The encoding of all depth files, from their bits and the unit that the list states.

    `units` holds the values of the column depth_unit_m, each with the first line that has it.
    """
    unit_m = None
    for text, line in units.items():
        here_m = _unit_m(root, text, line) if text else None
        first = next(iter(units))
        if text != first and here_m != unit_m:
            raise UserError(
                f"{root / MARK} line {line}: depth_unit_m is {text or 'empty'} here and "
                f"{first or 'empty'} before: a data set has one unit"
            )
        unit_m = here_m
    path, bits = _first_depth(frames)
    if unit_m:
        return DepthEncoding(bits, 1, unit_m)
    if bits == 16:
        return MILLIMETRES
    raise UserError(
        f"{path} has {bits} bits, depth in millimetres has 16: write 16-bit files, or state the "
        f"unit in a column depth_unit_m of {root / MARK} (metres for one unit)"
    )


def _first_depth(frames: list[Frame]) -> tuple[Path | None, int]:
    """The first depth file that can be read, and its bits; 16 where none can."""
    for frame in frames:
        if frame.depth is not None:
            try:
                return frame.depth, read_values(frame.depth).dtype.itemsize * 8
            except UserError:  # packing or inspecting the frame says what is wrong with it
                continue
    return None, 16


def _unit_m(root: Path, text: str, line: int) -> float:
    try:
        unit_m = number(text)
    except ValueError:
        unit_m = math.nan
    if not 0 < unit_m < math.inf:
        raise UserError(
            f"{root / MARK} line {line}: depth_unit_m must be metres for one unit, a number above "
            f"0; got {text!r}"
        )
    return unit_m


def _frame(root: Path, row: Row, line: int) -> Frame:
    def path(column: str) -> Path | None:
        value = row.get(column)
        if not value:
            return None
        resolved = root / value
        if not resolved.is_file():
            raise UserError(f"{root / MARK} line {line}: no file {value} ({column})")
        return resolved

    clip, rgb = row["clip"], path("rgb")
    if not clip or rgb is None:
        raise UserError(f"{root / MARK} line {line}: clip and rgb must not be empty")
    scene = row.get("scene") or clip
    frame = Frame(
        clip,
        rgb.stem,
        scene,
        rgb,
        path("depth"),
        path("pseudo"),
        path("objects"),
        _intrinsics(root, row, line),
        points=path("points"),
    )
    refuse_depth_as_points(frame, f"{root / MARK} line {line}: ")
    return frame


def _intrinsics(root: Path, row: Row, line: int) -> Intrinsics | None:
    values = [row.get(column, "") for column in INTRINSICS]
    if not any(values):
        return None
    return checked_intrinsics(values, f"{root / MARK} line {line}")


def _clip(root: Path, row: Row, frame: Frame, line: int) -> Clip:
    names = {name.strip() for name in row.get("classes", "").split("+")}
    classes = tuple(sorted(filter(None, names)))
    speed = row.get("speed") or "0"
    if not speed.isdecimal() or len(speed) > SPEED_DIGITS:
        raise UserError(f"{root / MARK} line {line}: speed must be whole m/s, got {speed!r}")
    return Clip(frame.clip, frame.scene, speed=int(speed), classes=classes)


def _add_clip(clips: dict[str, Clip], clip: Clip, where: str) -> None:
    """Raises `UserError` for a line that contradicts an earlier one of the same clip."""
    first = clips.setdefault(clip.name, clip)
    for column in ("speed", "classes"):
        here, before = getattr(clip, column), getattr(first, column)
        if here != before:
            raise UserError(
                f"{where}: clip {clip.name} has {column} {_words(here)} here and {_words(before)} "
                "before: write the same in all its lines"
            )


def _refuse_two_scenes(
    scenes: dict[str, tuple[str, int]], frame: Frame, file: Path, line: int
) -> None:
    """Raises `UserError` for a file that an earlier line has in another scene: a split by scene
    would train on the picture that it validates or tests with.

    Args:
        scenes: the scene of each file so far, and its first line.
    """
    for column, path in (("rgb", frame.rgb), ("depth", frame.depth), ("pseudo", frame.zoe)):
        if path is not None:
            scene, first = scenes.setdefault(os.path.normpath(path), (frame.scene, line))
            if scene != frame.scene:
                raise UserError(
                    f"{file} line {line}: {path} ({column}) is in scene {frame.scene} here "
                    f"and in scene {scene} in line {first}, so that a split could train and test "
                    "on it: give both lines the same scene, or remove one"
                )


def _words(value: int | tuple[str, ...]) -> str:
    return str(value or "none") if isinstance(value, int) else "+".join(value) or "none"


def _refuse_duplicates(root: Path, frames: list[Frame]) -> None:
    """A frame is identified by its clip and its picture's name; a clip lies in one scene."""
    names: dict[tuple[str, str], Frame] = {}
    scenes: dict[str, str] = {}
    for frame in frames:
        if names.setdefault((frame.clip, frame.name), frame) is not frame:
            raise UserError(f"{root / MARK}: clip {frame.clip} has two pictures {frame.name}")
        if scenes.setdefault(frame.clip, frame.scene) != frame.scene:
            raise UserError(f"{root / MARK}: clip {frame.clip} is in two scenes")
