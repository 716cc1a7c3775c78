"""Reports what a data set contains and which faults it has."""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from zoerefine.base.depth_limits import FARTHEST_M, NEAREST_M
from zoerefine.base.errors import UserError
from zoerefine.base.files.images import UPRIGHT, exif_orientation, read_rgb
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.messages import first_few
from zoerefine.base.progress import track
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.cache.decode import read_frame
from zoerefine.depth.data.dataset import Dataset, Frame
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.depth_unit import question_of_truth, ratio_of
from zoerefine.depth.data.inspect.edge_alignment import SHIFT_TO_WARN, edge_alignment
from zoerefine.depth.data.inspect.one_room import POINTS_OF_ONE_ROOM, compare_rooms
from zoerefine.depth.data.networks.add_pseudo import require_made_for
from zoerefine.depth.data.networks.pseudo_source import label_of
from zoerefine.depth.data.split import PARTS, Split

FAULTS_SHOWN = 20
CAMERAS_SHOWN = 3


@dataclass(frozen=True)
class FrameReport:
    """What reading one frame has shown; `fault` is empty, or says what is wrong with it.

    Attributes:
        size: "WIDTHxHEIGHT"; empty for a frame that could not be read.
        nearest_m, farthest_m: of its valid true depth; NaN without any.
        valid_share: of its pixels, by their true depth.
        abs_rel: of its pseudo depth, as the metrics count it; NaN where no pixel is in their range.
        ratio: of pseudo to true depth; see `ratio_of`.
        is_usable: whether a pixel has pseudo depth and a truth in the range of the metrics.
        orientation: EXIF's; 1 is upright.
    """

    size: str = ""
    nearest_m: float = math.nan
    farthest_m: float = math.nan
    valid_share: float = 0.0
    abs_rel: float = math.nan
    ratio: float = math.nan
    is_usable: bool = False
    orientation: int = UPRIGHT
    fault: str = ""


def inspect(dataset: Dataset, limit_m: float = FARTHEST_M) -> tuple[str, int]:
    """Read every frame; returns the report as text, and the number of faults.

    Args:
        limit_m: metrics will use true depths below this, DATA.FARTHEST_M.
    """
    sources = sorted(dataset.pseudo_sources, key=str)
    with ThreadPoolExecutor(usable_cores()) as pool:
        found = pool.map(lambda frame: read_and_report(frame, dataset, limit_m), dataset.frames)
        reports = list(track(found, len(dataset.frames), "reading", "frame"))
    faults = [report.fault for report in reports if report.fault] + list(dataset.unpaired)
    faults += _useless(reports, limit_m)
    sizes = Counter(report.size for report in reports if report.size)
    encoding = dataset.depth_encoding
    pseudo_label = "pseudo depth of several networks"
    if len(sources) == 1:
        pseudo_label = label_of(sources[0], dataset.pseudo_label)
    lines = [
        f"{dataset.root}: {dataset.label}",
        f"  {len(dataset.scenes)} scenes, {len(dataset.clips)} clips, {len(dataset.frames)} frames",
        f"  moving objects, by number of clips: {_objects(dataset) or 'unknown'}",
        f"  sizes: {', '.join(f'{size} ({n})' for size, n in sizes.most_common()) or 'unknown'}",
        f"  depth files: {encoding.bits} bits, in steps of "
        f"{encoding.span_m / encoding.units:.4g} m",
        f"  without pseudo depth: {_clips_without_zoe(dataset) or 'none'}",
        f"  network of the pseudo depth: {', '.join(map(str, sources)) or 'none'}",
        f"  intrinsics: {_intrinsics(dataset)}",
        *_depth_lines(reports, pseudo_label),
        *_orientation_lines(dataset, reports),
        *_alignment_lines(dataset),
        *_room_lines(dataset),
        f"  faults: {len(faults) or 'none'}",
        *(f"    {fault}" for fault in faults[:FAULTS_SHOWN]),
    ]
    return "\n".join(lines), len(faults)


def read_and_report(frame: Frame, dataset: Dataset, limit_m: float) -> FrameReport:
    """Read one frame at its own size."""
    try:
        height, width = read_rgb(frame.rgb).shape[:2]
        arrays = read_frame(frame, dataset.depth_encoding, height, width)
        require_made_for(frame)
    except UserError as error:
        return FrameReport(fault=str(error))
    depth_m = arrays["depth"] * dataset.depth_encoding.u16_unit_m
    zoe_m = arrays["zoe"] * ZOE_UNIT_M
    size, orientation = f"{width}x{height}", exif_orientation(frame.rgb)
    for path, values in ((frame.depth, depth_m), (frame.zoe, zoe_m)):
        if not values.any():
            fault = f"{path} has no valid pixel: all are 0 (no measurement)"
            return FrameReport(size, orientation=orientation, fault=fault)
    valid = depth_m > 0
    in_range = valid & (zoe_m > 0) & (depth_m > NEAREST_M) & (depth_m < limit_m)
    truth_m = depth_m[in_range]
    errors = np.abs(zoe_m[in_range].clip(NEAREST_M, limit_m) - truth_m) / truth_m
    return FrameReport(
        size,
        nearest_m=float(depth_m[valid].min()),
        farthest_m=float(depth_m.max()),
        valid_share=float(valid.mean()),
        abs_rel=float(errors.mean()) if in_range.any() else math.nan,
        ratio=ratio_of(zoe_m, depth_m),
        is_usable=bool(in_range.any()),
        orientation=orientation,
    )


def _depth_lines(reports: list[FrameReport], pseudo_label: str) -> list[str]:
    usable = [report for report in reports if report.valid_share]
    if not usable:
        return []
    nearest = min(report.nearest_m for report in usable)
    farthest = max(report.farthest_m for report in usable)
    valid = np.mean([report.valid_share for report in usable])
    lines = [f"  depth: {nearest:.2f} to {farthest:.2f} m, {valid:.0%} of the pixels are valid"]
    errors = [report.abs_rel for report in usable if not math.isnan(report.abs_rel)]
    if errors:
        lines.append(
            f"  {pseudo_label}: AbsRel {np.mean(errors):.3f} before refinement: the mean of "
            "|pseudo - true depth| / true depth"
        )
    question = question_of_truth(report.ratio for report in usable)
    return [*lines, f"  WARNING: {question}"] if question else lines


def _useless(reports: list[FrameReport], limit_m: float) -> list[str]:
    """A fault if no frame at all can be used; frames with a fault of their own do not count."""
    whole = [report for report in reports if not report.fault]
    if not whole or any(report.is_usable for report in whole):
        return []
    return [
        f"no pixel has a true depth of {NEAREST_M:g} to {limit_m:g} m and pseudo depth: nothing "
        "can be trained or measured; is the unit of depth right, or --farthest needed?"
    ]


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
    points = f"{found.weakest_link} points of their pictures match in one geometry"
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


NAMES = {"train": "training", "val": "validation", "test": "test"}


def check_measured(cache: Cache, split: Split) -> None:
    """Raises `UserError` for a part of the split without a single usable pixel.

    It reads frames until it finds such a pixel: almost always the first frame of each part.
    """
    for part in PARTS:
        scenes = getattr(split, part)
        indices = cache.indices(scenes).tolist()
        if scenes and not any(_has_usable_pixel(cache, index) for index in indices):
            raise UserError(
                f"no pixel of the {NAMES[part]} scenes ({first_few(scenes, 3)}) "
                f"has a true depth of {NEAREST_M:g} to "
                f"{cache.farthest_m:g} m and pseudo depth: `zoerefine data inspect` shows what the "
                "files hold; is the unit of depth right, and DATA.FARTHEST_M?"
            )


def _has_usable_pixel(cache: Cache, index: int) -> bool:
    record = cache.read(index)
    truth_m = record["depth"] * cache.depth_scale
    in_range = (truth_m > NEAREST_M) & (truth_m < cache.farthest_m)
    return bool((in_range & (record["zoe"] > 0)).any())
