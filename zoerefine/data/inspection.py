"""Reports what a data set holds and what is wrong with it, and draws a contact sheet."""

import math
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.decode import read_depth, read_frame, read_zoe
from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.data.edge_alignment import SHIFT_TO_WARN, edge_alignment
from zoerefine.data.one_room import POINTS_OF_ONE_ROOM, compare_rooms
from zoerefine.errors import UserError
from zoerefine.image_files import UPRIGHT, exif_orientation, read_rgb, write_png
from zoerefine.pictures import depth_colors
from zoerefine.progress import track

SHEET_CLIPS = 24
SHEET_COLUMNS = 4
THUMB = (120, 160)  # rows, columns of one picture on the contact sheet
USUAL_RANGE_M = 10.0  # the colour scale where no true depth is valid
FAULTS_SHOWN = 20
CAMERAS_SHOWN = 3


@dataclass(frozen=True)
class FrameReport:
    """What reading one frame has shown; `fault` is empty, or says what is wrong with it.

    Attributes:
        size: "WIDTHxHEIGHT"; empty for a frame that could not be read.
        nearest_m, farthest_m: of its valid true depth; NaN without any.
        valid_share: of its pixels, by their true depth.
        abs_rel: of its pseudo depth; NaN where no pixel has both depths.
        orientation: EXIF's; 1 is upright.
    """

    size: str = ""
    nearest_m: float = math.nan
    farthest_m: float = math.nan
    valid_share: float = 0.0
    abs_rel: float = math.nan
    orientation: int = UPRIGHT
    fault: str = ""


def inspect(dataset: Dataset) -> tuple[str, int]:
    """Read every frame; returns the report as text, and the number of faults."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda frame: read_and_report(frame, dataset), dataset.frames)
        reports = list(track(found, len(dataset.frames), "reading", "frame"))
    faults = [report.fault for report in reports if report.fault] + list(dataset.unpaired)
    sizes = Counter(report.size for report in reports if report.size)
    encoding = dataset.depth_encoding
    lines = [
        f"{dataset.root}: {dataset.label}",
        f"  {len(dataset.scenes)} scenes, {len(dataset.clips)} clips, {len(dataset.frames)} frames",
        f"  moving objects: {_objects(dataset) or 'unknown'}",
        f"  sizes: {', '.join(f'{size} ({n})' for size, n in sizes.most_common()) or 'unknown'}",
        f"  depth files: {encoding.bits} bits, {encoding.span_m / encoding.units:.4g} m a unit",
        f"  without pseudo depth: {_clips_without_zoe(dataset) or 'none'}",
        f"  intrinsics: {_intrinsics(dataset)}",
        *_depth_lines(dataset, reports),
        *_orientation_lines(dataset, reports),
        *_alignment_lines(dataset),
        *_room_lines(dataset),
        f"  faults: {len(faults) or 'none'}",
        *(f"    {fault}" for fault in faults[:FAULTS_SHOWN]),
    ]
    return "\n".join(lines), len(faults)


def read_and_report(frame: Frame, dataset: Dataset) -> FrameReport:
    """Read one frame at its own size."""
    try:
        height, width = read_rgb(frame.rgb).shape[:2]
        arrays = read_frame(frame, dataset.depth_encoding, height, width)
    except UserError as error:
        return FrameReport(fault=str(error))
    depth_m = arrays["depth"] * dataset.depth_encoding.u16_unit_m
    zoe_m = arrays["zoe"] * ZOE_UNIT_M
    size, orientation = f"{width}x{height}", exif_orientation(frame.rgb)
    for path, values in ((frame.depth, depth_m), (frame.zoe, zoe_m)):
        if not values.any():
            fault = f"{path} has no valid pixel: all are 0 (no measurement)"
            return FrameReport(size, orientation=orientation, fault=fault)
    valid, both = depth_m > 0, (depth_m > 0) & (zoe_m > 0)
    errors = np.abs(zoe_m[both] - depth_m[both]) / depth_m[both]
    return FrameReport(
        size,
        nearest_m=float(depth_m[valid].min()),
        farthest_m=float(depth_m.max()),
        valid_share=float(valid.mean()),
        abs_rel=float(errors.mean()) if both.any() else math.nan,
        orientation=orientation,
    )


def _depth_lines(dataset: Dataset, reports: list[FrameReport]) -> list[str]:
    usable = [report for report in reports if report.valid_share]
    if not usable:
        return []
    nearest = min(report.nearest_m for report in usable)
    farthest = max(report.farthest_m for report in usable)
    valid = np.mean([report.valid_share for report in usable])
    lines = [f"  depth: {nearest:.2f} to {farthest:.2f} m, {valid:.0%} of the pixels are valid"]
    errors = [report.abs_rel for report in usable if not math.isnan(report.abs_rel)]
    if errors:
        lines.append(f"  {dataset.pseudo_label}: AbsRel {np.mean(errors):.3f} before refinement")
    return lines


def _orientation_lines(dataset: Dataset, reports: list[FrameReport]) -> list[str]:
    turned = [
        frame.rgb
        for frame, report in zip(dataset.frames, reports, strict=True)
        if report.orientation != UPRIGHT
    ]
    if not turned:
        return []
    return [
        f"  EXIF orientation: set in {len(turned)} pictures, first {turned[0]}; it is not applied: "
        "the depth must have the pixel order of the file"
    ]


def _alignment_lines(dataset: Dataset) -> list[str]:
    alignment = edge_alignment(dataset)
    if alignment is None:
        return []
    lines = [f"  colour and depth edges: {alignment}"]
    if alignment.is_off:
        lines.append(
            f"  WARNING: colour and depth are {SHIFT_TO_WARN} px or more apart: register the depth "
            "to the colour camera, or borders will be learned wrong"
        )
    return lines


def _room_lines(dataset: Dataset) -> list[str]:
    found = compare_rooms(dataset)
    if found is None:
        return []
    which = f"all {found.clips} clips"
    if found.compared < found.clips:
        which += f" ({found.compared} compared)"
    points = f"{found.weakest_link} matching points connect them"
    if not found.is_one_room:
        needed = f"{POINTS_OF_ONE_ROOM} would show one room"
        return [f"  no sign that {which} show one room: {points}, {needed}"]
    return [
        f"  WARNING: {which} seem to show one room ({points}, {POINTS_OF_ONE_ROOM} are enough): "
        "a split by clip proves nothing about other rooms"
    ]


def _objects(dataset: Dataset) -> str:
    """Clips by class and speed of their moving objects, and how many have several classes."""
    classes = Counter(name for clip in dataset.clips for name in clip.classes)
    several = sum(len(clip.classes) > 1 for clip in dataset.clips)
    speeds = Counter(f"{clip.speed} m/s" for clip in dataset.clips if clip.speed)
    counts = [f"{name} ({n})" for name, n in [*sorted(classes.items()), *sorted(speeds.items())]]
    return ", ".join(counts) + (f"; several classes in {several} clips" if several else "")


def _intrinsics(dataset: Dataset) -> str:
    """The most frequent cameras with their frames, in pixels of the picture files."""
    counts = Counter(frame.intrinsics for frame in dataset.frames)
    unknown = counts.pop(None, 0)
    listed = [f"{camera} px ({n})" for camera, n in counts.most_common(CAMERAS_SHOWN)]
    if len(counts) > CAMERAS_SHOWN:
        listed.append(f"{len(counts) - CAMERAS_SHOWN} other cameras")
    if unknown and counts:
        listed.append(f"unknown ({unknown})")
    return "; ".join(listed) or "unknown"


def _clips_without_zoe(dataset: Dataset) -> str:
    missing = Counter(frame.clip for frame in dataset.frames if frame.zoe is None)
    return ", ".join(f"clip {clip} ({n} frames)" for clip, n in sorted(missing.items()))


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
    write_png(path, np.vstack(rows))


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
