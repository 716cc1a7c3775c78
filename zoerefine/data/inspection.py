"""Says what a data set holds and what is wrong with it, and draws a contact sheet."""

import math
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np

from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.decode import read_depth, read_frame, read_rgb, read_zoe
from zoerefine.errors import UserError
from zoerefine.files import replacing
from zoerefine.progress import track

SHEET_CLIPS = 24
SHEET_COLUMNS = 4
THUMB = (120, 160)  # rows, columns of one picture on the contact sheet
FAR_M = 10.0  # the colour scale's end
FAULTS_SHOWN = 20
NEAREST = cv2.INTER_NEAREST


@dataclass(frozen=True)
class Look:
    """What reading one frame has shown; `fault` says why it cannot be used."""

    size: str = ""
    nearest_m: float = math.inf
    farthest_m: float = 0.0
    measured: float = 0.0
    abs_rel: float = math.nan
    fault: str = ""


@dataclass
class Inspection:
    """What reading every frame has shown."""

    looks: list[Look] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, look: Look) -> None:
        """Count a frame, or its fault."""
        if look.fault:
            self.faults.append(look.fault)
        else:
            self.looks.append(look)


def inspect(dataset: Dataset) -> tuple[str, int]:
    """Read every frame; returns lines for people, and how many frames cannot be used."""
    found = Inspection()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        looks = pool.map(lambda frame: look_at(frame, dataset), dataset.frames)
        for look in track(looks, len(dataset.frames), "reading", "frame"):
            found.add(look)
    found.faults += dataset.unpaired
    sizes = Counter(look.size for look in found.looks)
    lines = [
        f"{dataset.root}: {dataset.label}",
        f"  {len(dataset.scenes)} scenes, {len(dataset.clips)} clips, {len(dataset.frames)} frames",
        f"  moving objects: {_objects(dataset) or 'not told'}",
        f"  sizes: {', '.join(f'{size} ({n})' for size, n in sizes.most_common())}",
        f"  without pseudo depth: {_clips_lacking_zoe(dataset) or 'none'}",
    ]
    if found.looks:
        nearest = min(look.nearest_m for look in found.looks)
        farthest = max(look.farthest_m for look in found.looks)
        measured = np.mean([look.measured for look in found.looks])
        lines += [
            f"  depth: {nearest:.2f} to {farthest:.2f} m, {measured:.0%} of the pixels measured",
            f"  {dataset.pseudo_label}: AbsRel "
            f"{np.nanmean([look.abs_rel for look in found.looks]):.3f} as it is",
        ]
    lines.append(f"  faults: {len(found.faults) or 'none'}")
    lines += [f"    {fault}" for fault in found.faults[:FAULTS_SHOWN]]
    return "\n".join(lines), len(found.faults)


def look_at(frame: Frame, dataset: Dataset) -> Look:
    """Read one frame at its own size."""
    try:
        height, width = read_rgb(frame.rgb).shape[:2]
        arrays = read_frame(frame, height, width)
    except UserError as error:
        return Look(fault=str(error))
    depth_m = arrays["depth"] * dataset.depth_scale
    zoe_m = arrays["zoe"] * dataset.zoe_scale
    size, measured = f"{width}x{height}", float((depth_m > 0).mean())
    both = (depth_m > 0) & (zoe_m > 0)
    if not both.any():
        return Look(size, measured=measured)
    truth_m = depth_m[both]
    abs_rel = float((np.abs(zoe_m[both] - truth_m) / truth_m).mean())
    return Look(size, float(truth_m.min()), float(truth_m.max()), measured, abs_rel)


def _objects(dataset: Dataset) -> str:
    """Clips by class, and by one or several classes of moving objects."""
    classes = Counter(name for clip in dataset.clips for name in clip.classes)
    several = sum(len(clip.classes) > 1 for clip in dataset.clips)
    speeds = Counter(f"{clip.speed} m/s" for clip in dataset.clips if clip.speed)
    told = [f"{name} ({n})" for name, n in [*sorted(classes.items()), *sorted(speeds.items())]]
    return ", ".join(told) + (f"; several classes in {several} clips" if several else "")


def _clips_lacking_zoe(dataset: Dataset) -> str:
    lacking = Counter(frame.clip for frame in dataset.frames if frame.zoe is None)
    return ", ".join(f"clip {clip} ({n} frames)" for clip, n in sorted(lacking.items()))


def contact_sheet(dataset: Dataset, path: Path) -> None:
    """Draw the first frame of up to `SHEET_CLIPS` clips: picture, truth and pseudo depth."""
    firsts = {frame.clip: frame for frame in reversed(dataset.frames)}
    frames = sorted(firsts.values(), key=lambda f: (f.scene, f.clip))
    step = -(-len(frames) // SHEET_CLIPS)
    cells = [_cell(frame, dataset) for frame in frames[::step]]
    cells += [np.zeros_like(cells[0])] * (-len(cells) % SHEET_COLUMNS)
    rows = [np.hstack(cells[i : i + SHEET_COLUMNS]) for i in range(0, len(cells), SHEET_COLUMNS)]
    _, data = cv2.imencode(".png", np.vstack(rows))
    with replacing(path) as temporary:
        temporary.write_bytes(data.tobytes())


def _cell(frame: Frame, dataset: Dataset) -> np.ndarray:
    """One clip: its picture above, truth and pseudo depth beside each other below. BGR."""
    rows, columns = THUMB
    rgb = cv2.resize(read_rgb(frame.rgb), (2 * columns, 2 * rows), interpolation=cv2.INTER_AREA)
    picture = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    label = f"{frame.scene} {frame.clip}"
    cv2.putText(picture, label, (6, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1)
    depths = []
    for depth_file, read, scale in (
        (frame.depth, read_depth, dataset.depth_scale),
        (frame.zoe, read_zoe, dataset.zoe_scale),
    ):
        grey = np.zeros(THUMB, np.float32)
        with suppress(UserError):  # the report names what is broken; here it stays black
            if depth_file is not None:
                small = cv2.resize(read(depth_file), (columns, rows), interpolation=NEAREST)
                grey = small * np.float32(scale / FAR_M * 255)
        colored = cv2.applyColorMap(np.clip(grey, 0, 255).astype(np.uint8), cv2.COLORMAP_VIRIDIS)
        depths.append(np.where(grey[..., None] > 0, colored, 0))
    return np.vstack([picture, np.hstack(depths)])
