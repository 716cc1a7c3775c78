"""A folder with a `frames.csv`: columns clip, rgb, depth, pseudo, and if wanted objects, scene,
classes (of the clip's moving objects, `dog+toy car`) and speed (theirs, whole m/s).

Paths are relative to the folder. Depth is a 16-bit png in millimetres, pseudo depth a 16-bit png
with metres = value / 256; 0 is no measurement. Without a scene column a clip is its own scene.
"""

import csv
from pathlib import Path

from zoerefine.data.dataset import ZOE_SCALE, Clip, Dataset, Frame
from zoerefine.errors import UserError
from zoerefine.files import replacing

LIST = "frames.csv"
DEPTH_SCALE = 0.001
NEEDED = {"clip", "rgb", "depth", "pseudo"}


def fits(root: Path) -> bool:
    """Whether a folder has this layout."""
    return (root / LIST).is_file()


def read(root: Path) -> Dataset:
    """Read the list and check that its files are there."""
    with open(root / LIST, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        missing = NEEDED - set(rows.fieldnames or ())
        if missing:
            raise UserError(f"{root / LIST} lacks the columns {', '.join(sorted(missing))}")
        frames, clips = [], {}
        for row in rows:
            frame = _frame(root, row, rows.line_num)
            frames.append(frame)
            clips[frame.clip] = _clip(root, row, frame, rows.line_num)
    _refuse_twins(root, frames)
    return Dataset(
        root=root,
        layout="frames_csv",
        label=f"real frames listed in {root.name}/{LIST}",
        pseudo_label="pseudo depth",
        depth_scale=DEPTH_SCALE,
        zoe_scale=ZOE_SCALE,
        frames=tuple(sorted(frames, key=lambda f: (f.scene, f.clip, f.name))),
        clips=tuple(clips[name] for name in sorted(clips)),
    )


def zoe_path(root: Path, frame: Frame) -> Path:
    """Where a frame's pseudo depth belongs, if the list names none."""
    return root / "pseudo" / frame.clip / f"{frame.name}.png"


def name_pseudo(root: Path, paths: dict[Path, Path]) -> None:
    """Enter pseudo depth into the list: `paths` of the pictures that have it now."""
    with open(root / LIST, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        columns, lines = list(rows.fieldnames or ()), list(rows)
    with (
        replacing(root / LIST) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for line in lines:
            path = paths.get(root / line["rgb"])
            writer.writerow(line | ({"pseudo": path.relative_to(root).as_posix()} if path else {}))


def _clip(root: Path, row: dict[str, str | None], frame: Frame, line: int) -> Clip:
    classes = tuple(sorted(filter(None, (row.get("classes") or "").split("+"))))
    speed = row.get("speed") or "0"
    if not speed.isdecimal():
        raise UserError(f"{root / LIST} line {line}: speed must be whole m/s, got {speed!r}")
    return Clip(frame.clip, frame.scene, speed=int(speed), classes=classes)


def _refuse_twins(root: Path, frames: list[Frame]) -> None:
    """Frames are told apart by clip and picture name; a clip lies in one scene."""
    names: dict[tuple[str, str], Frame] = {}
    scenes: dict[str, str] = {}
    for frame in frames:
        if names.setdefault((frame.clip, frame.name), frame) is not frame:
            raise UserError(f"{root / LIST}: clip {frame.clip} has two pictures {frame.name}")
        if scenes.setdefault(frame.clip, frame.scene) != frame.scene:
            raise UserError(f"{root / LIST}: clip {frame.clip} is in two scenes")


def _frame(root: Path, row: dict[str, str | None], line: int) -> Frame:
    def path(column: str) -> Path | None:
        value = row.get(column)
        if not value:
            return None
        resolved = root / value
        if not resolved.is_file():
            raise UserError(f"{root / LIST} line {line}: no file {value} ({column})")
        return resolved

    clip, rgb = row["clip"] or "", path("rgb")
    if not clip or rgb is None:
        raise UserError(f"{root / LIST} line {line}: clip and rgb must not be empty")
    scene = row.get("scene") or clip
    return Frame(clip, rgb.stem, scene, rgb, path("depth"), path("pseudo"), path("objects"))
