"""A picture of an inference for people: one frame before and after."""

import math
import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoerefine.base.depth_limits import FARTHEST_M
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import HALF_WRITTEN, remove_half_written
from zoerefine.base.files.images import write_png
from zoerefine.base.files.own_files import refuse_foreign
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.progress import track
from zoerefine.depth.data.cache.decode import read_truth_m
from zoerefine.depth.data.dataset import evenly_spaced
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.exporting import SPREAD_UNITS
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.infer.inference import POINTS_ALONE, Done, Inference
from zoerefine.depth.infer.results import (
    COLORS,
    CONFIDENCE,
    ResultFolder,
    has_provenance,
)
from zoerefine.depth.infer.sources import FrameSource, SourceFrame
from zoerefine.depth.pictures import depth_colors, panel_figure, save_panel

SAMPLED_FRAMES = 24  # evenly spaced
EVERY_PIXEL = 4  # of these frames' rows and columns is read
PERCENTILES = 1, 99
STEPS_PER_M = 10  # a range begins and ends at a multiple of 0.1 m


@dataclass(frozen=True)
class DepthRange:
    """The depths at the two ends of the colours, metres."""

    near_m: float
    far_m: float

    def __str__(self) -> str:
        return f"{self.near_m:g} to {self.far_m:g} m"


def range_of_data(job: Inference, done: Done) -> DepthRange:
    """From the 1st to the 99th percentile of pseudo and refined depth, outwards to 0.1 m.

    Args:
        done: the finished frames by name; some are read, evenly spaced.
    """
    depths = []
    for name in evenly_spaced(sorted(done), SAMPLED_FRAMES):
        for depth in job.depths(name, done[name]):
            depths.append(depth[::EVERY_PIXEL, ::EVERY_PIXEL].ravel())
    valid = np.concatenate(depths)
    valid = valid[valid > 0] * ZOE_UNIT_M
    if not len(valid):
        return DepthRange(0.0, FARTHEST_M)
    low, high = np.percentile(valid, PERCENTILES)
    first, last = math.floor(low * STEPS_PER_M), math.ceil(high * STEPS_PER_M)
    return DepthRange(first / STEPS_PER_M, max(last, first + 1) / STEPS_PER_M)


def draw_middle_frame(path: Path, job: Inference, done: Done, truth: Path | None) -> None:
    """Draw the middle one of the finished frames, compared with its true depth if there is any."""
    frame = next(finished_frames(job.source, {sorted(done)[len(done) // 2]}))
    true_m = None
    if truth and (true := truth / f"{frame.name}.png").exists():
        from zoerefine.depth.infer.evaluate import truth_encodings  # late: torch comes with it

        farthest_m = job.engine.manifest.get("farthest_m", FARTHEST_M)
        true_m = read_truth_m(true, truth_encodings(truth, [frame.name])[frame.name], farthest_m)
    zoe, refined = job.depths(frame.name, done[frame.name])
    if true_m is not None and true_m.shape != zoe.shape:
        true_m = None  # it was named, and is not compared either
    figure = panel_figure(
        frame.read(),
        zoe * ZOE_UNIT_M,
        refined * ZOE_UNIT_M,
        true_m,
        "pseudo depth",
        f"{frame.name}   |   {origin_of(job.engine)}",
        spread=read_spread(job, frame.name, done[frame.name]),
    )
    points = job.points_of(frame.name, *zoe.shape).usable(*zoe.shape)
    if len(points):
        picture = figure.axes[0]
        picture.scatter(points.x, points.y, s=12, c="yellow", edgecolors="black", linewidths=0.5)
        picture.set_title(f"RGB, {len(points)} metric point{'s' * (len(points) > 1)}")
    save_panel(figure, path)


def origin_of(engine: Engine) -> str:
    """What made refined depth, for a title."""
    if engine.digest == POINTS_ALONE:
        return "pseudo depth corrected by metric points, without a refiner"
    if engine.digest.startswith(POINTS_ALONE):
        return "pseudo depth corrected by what was measured in the room, without a refiner"
    facts = engine.manifest
    made = f"commit {facts['commit'][:8]}, {facts['engine']} {facts['precision']}"
    return f"refiner trained on {facts['data']}   |   {made}"


def read_spread(job: Inference, name: str, inputs: str) -> np.ndarray | None:
    """The spread of a frame in log depth, float64 [H, W]; None if it is not written."""
    if not job.results.with_confidence:
        return None
    return job.results.read(name, inputs, CONFIDENCE) / SPREAD_UNITS


def remove_parts(path: Path) -> None:
    """Remove what a killed command left of a drawing or video beside it."""
    remove_half_written(path.parent.glob(HALF_WRITTEN), re.escape(path.name))


def finished_frames(source: FrameSource, done: Collection[str]) -> Iterator[SourceFrame]:
    """The frames of a source that have results."""
    with suppress(UserError):  # a video that is cut short was reported when it was refined
        for frame in source.frames():
            if frame.name in done:
                yield frame


def write_colors(results: ResultFolder, done: Done, shown: DepthRange) -> None:
    """Write the colour picture of every finished frame that has none of this range yet.

    Raises `UserError` where another program's file is there, or in the place of refined depth.
    """

    def write(name: str) -> None:
        """Write one picture, with the provenance of the depth that it shows."""
        path = results.picture(COLORS, name)
        provenance = results.origin(done[name]) | {"colors": f"viridis, {shown}"}
        if has_provenance(path, provenance):
            return
        refuse_foreign([path], "--out")
        depth_m = results.read(name, done[name]) * ZOE_UNIT_M
        write_png(path, depth_colors(depth_m, shown.far_m, shown.near_m), provenance)

    names = sorted(done)
    with ThreadPoolExecutor(usable_cores()) as pool:
        list(track(pool.map(write, names), len(names), "colouring", "frame"))
