"""Says what a data set holds and what is wrong with it, and draws a contact sheet."""

from collections import Counter
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


@dataclass
class Findings:
    """What reading every frame has shown."""

    sizes: Counter[str] = field(default_factory=Counter)
    nearest_m: float = np.inf
    farthest_m: float = 0.0
    measured: list[float] = field(default_factory=list)
    abs_rel: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def inspect(dataset: Dataset) -> tuple[str, int]:
    """Read every frame; returns lines for people, and how many frames cannot be used."""
    found = Findings()
    for frame in track(dataset.frames, len(dataset.frames), "reading", "frame"):
        try:
            look_at(frame, dataset, found)
        except UserError as error:
            found.faults.append(str(error))
    clips = len({frame.clip for frame in dataset.frames})
    lines = [
        f"{dataset.root}: {dataset.label}",
        f"  {len(dataset.scenes)} scenes, {clips} clips, {len(dataset.frames)} frames",
        f"  sizes: {', '.join(f'{size} ({n})' for size, n in found.sizes.most_common())}",
        f"  without pseudo depth: {_clips_lacking_zoe(dataset) or 'none'}",
    ]
    if found.measured:
        lines += [
            f"  depth: {found.nearest_m:.2f} to {found.farthest_m:.2f} m, "
            f"{np.mean(found.measured):.0%} of the pixels measured",
            f"  {dataset.pseudo_label}: AbsRel {np.mean(found.abs_rel):.3f} as it is",
        ]
    lines.append(f"  faults: {len(found.faults) or 'none'}")
    lines += [f"    {fault}" for fault in found.faults[:FAULTS_SHOWN]]
    return "\n".join(lines), len(found.faults)


def look_at(frame: Frame, dataset: Dataset, found: Findings) -> None:
    """Read one frame at its own size. Raises `UserError` where it cannot be used."""
    height, width = read_rgb(frame.rgb).shape[:2]
    arrays = read_frame(frame, height, width)
    depth_m = arrays["depth"] * dataset.depth_scale
    zoe_m = arrays["zoe"] * dataset.zoe_scale
    valid = (depth_m > 0) & (zoe_m > 0)
    found.sizes[f"{width}x{height}"] += 1
    found.measured.append(float((depth_m > 0).mean()))
    if valid.any():
        found.nearest_m = min(found.nearest_m, float(depth_m[valid].min()))
        found.farthest_m = max(found.farthest_m, float(depth_m[valid].max()))
        found.abs_rel.append(float((np.abs(zoe_m - depth_m)[valid] / depth_m[valid]).mean()))


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
