"""A picture of an inference for people: one frame before and after."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from zoerefine.data.decode import read_truth_m, read_zoe
from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.data.readers import stated_encoding
from zoerefine.errors import UserError
from zoerefine.exporting.outputs import SPREAD_UNITS
from zoerefine.files import HALF_WRITTEN, remove_half_written
from zoerefine.image_files import read_values
from zoerefine.infer.inference import Inference
from zoerefine.infer.sources import FrameSource, SourceFrame
from zoerefine.pictures import panel


def draw_middle_frame(path: Path, job: Inference, done: set[str], truth: Path | None) -> None:
    """Draw the middle one of the finished frames, compared with its true depth if there is any."""
    frame = next(finished_frames(job.source, {sorted(done)[len(done) // 2]}))
    manifest = job.engine.manifest
    true = truth / f"{frame.name}.png" if truth else None
    panel(
        path,
        frame.read(),
        read_zoe(job.pseudo.path(frame.name)) * ZOE_UNIT_M,
        read_zoe(job.results.depth(frame.name)) * ZOE_UNIT_M,
        read_truth_m(true, stated_encoding(true.parent)) if true and true.exists() else None,
        "pseudo depth",
        f"{frame.name}   |   refiner trained on {manifest['data']}   |   commit "
        f"{manifest['commit'][:8]}, {manifest['engine']} {manifest['precision']}",
        spread=read_spread(job, frame.name),
    )


def read_spread(job: Inference, name: str) -> np.ndarray | None:
    """The spread of a frame in log depth, float64 [H, W]; None if it is not written."""
    if not job.results.with_confidence:
        return None
    return read_values(job.results.confidence(name)) / SPREAD_UNITS


def remove_parts(path: Path) -> None:
    """Remove what a killed command left of a drawing or video beside it."""
    remove_half_written(path.parent.glob(HALF_WRITTEN), re.escape(path.name))


def finished_frames(source: FrameSource, done: set[str]) -> Iterator[SourceFrame]:
    """The frames of a source that have results."""
    with suppress(UserError):  # a video that is cut short was reported when it was refined
        for frame in source.frames():
            if frame.name in done:
                yield frame
