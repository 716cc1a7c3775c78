"""Held-out frames as runs refine them, as pictures for the report."""

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch

from zoerefine.base.config import load_config, training_size
from zoerefine.base.errors import UserError
from zoerefine.base.files.images import jpeg_bytes
from zoerefine.base.machine.one_at_a_time import as_in_a_new_process
from zoerefine.base.registries import SELECTION_METRIC
from zoerefine.base.run_dir import RunDir
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.prefetch import Prefetcher
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.metrics import NAMES, picture_metrics, valid_pixels
from zoerefine.depth.pictures import (
    WORST_ERROR,
    depth_colors,
    error_colors,
    panel_figure,
    save_panel,
)
from zoerefine.depth.training.checkpoint import load_refiner
from zoerefine.depth.training.job import prepare
from zoerefine.lab.analysis.diff import run_labels
from zoerefine.lab.analysis.report.page_pictures import ExampleDepth, ExampleFrame
from zoerefine.lab.runs.record import Run

BATCH = 16
WIDEST = 320  # pixels of a picture on the page
QUALITY = 75  # of its JPEG
COLOR_STEPS = 17  # of a colour bar
SCORE = NAMES.index(SELECTION_METRIC)  # column of `picture_metrics`


@as_in_a_new_process()
def example_frames(
    runs: Sequence[tuple[str, Run]], pseudo: str, count: int = 2
) -> tuple[list[ExampleFrame], dict[str, str], dict[str, Any]]:
    """The held-out frames that the first run improves most, then those it improves least.

    Every other run refines the same frames, where it has them among its held-out frames.

    Args:
        runs: one run of each group, with the group's name.
        pseudo: the name of the pseudo depth.

    Returns:
        The frames; why runs are not shown, by group; the colours of the bars beside them.

    Raises:
        UserError: the weights or the data of the first run no longer exist.
    """
    (_, first), *_ = runs
    cache, indices = held_out(first)
    gain = [float(one.abs_rel[0] - one.abs_rel[1]) for one in refine(first, cache, indices)]
    order = [i for i in np.argsort(np.negative(gain), kind="stable") if np.isfinite(gain[i])]
    chosen = dict.fromkeys([*order[:count], *order[::-1][:count]])
    frames = [_frame(cache, int(indices[i])) for i in chosen]
    missing = {}
    for name, run in runs:
        try:
            _add_depths(frames, name, run, pseudo if run is first else "")
        except (UserError, OSError) as error:
            missing[name] = str(error)
    steps, truth_m = np.linspace(1e-6, 1, COLOR_STEPS)[None], np.ones((1, COLOR_STEPS))
    errors = 1 + np.linspace(0, WORST_ERROR, COLOR_STEPS)[None]
    colors = {  # depth from 0, which itself would be an invalid pixel
        "depth_colors": css_colors(depth_colors(steps, 1.0)),
        "error_colors": css_colors(error_colors(errors, truth_m)),
        "worst_error": WORST_ERROR,
    }
    return frames, missing, colors


def draw_side_by_side(first: Run, second: Run, path: Path) -> None:
    """Draw one held-out frame of the first run as both runs refine it, each under its settings.

    Raises `UserError` where weights or data no longer exist.
    """
    cache, indices = held_out(first)
    middle = indices[[len(indices) // 2]]
    index = int(middle[0])
    (ours,), (theirs,) = (list(refine(run, cache, middle)) for run in (first, second))
    height, width = ours.truth_m.shape
    other_m = cv2.resize(theirs.refined_m, (width, height), interpolation=cv2.INTER_NEAREST)
    title = f"{cache.frame_name(index)}   |   {cache.label}"
    left, right = run_labels(first, second)
    figure = panel_figure(
        cache.read(index)["rgb"], ours.refined_m, other_m, ours.truth_m, left, title,
        refined_label=right,
    )  # fmt: skip
    save_panel(figure, path)


def held_out(run: Run) -> tuple[Cache, np.ndarray]:
    """The run's cache, and its records of test scenes (or, without test scenes, of validation).

    Raises `UserError` where the data are others than the run recorded.
    """
    cfg = load_config(RunDir(Path(run.path)).config_file)
    cache, split = prepare(cfg)
    recorded, now = run.provenance.get("dataset_digest"), cache.dataset_digest
    if recorded and now and recorded != now:
        raise UserError(f"the data in {cfg.DATA.ROOT} have changed since {run.path} was trained")
    indices = cache.indices(split.test or split.val)
    if not len(indices):
        raise UserError(f"{run.path} has no held-out scenes")
    return cache, indices


class RefinedFrame(NamedTuple):
    """A frame at the size of the training: depths float32 [H, W] in metres.

    Attributes:
        abs_rel: of the pseudo and of the refined depth.
    """

    pseudo_m: np.ndarray
    refined_m: np.ndarray
    truth_m: np.ndarray
    abs_rel: tuple[float, float]


@torch.no_grad()
def refine(run: Run, cache: Cache, indices: np.ndarray) -> Iterator[RefinedFrame]:
    """The frames of these ascending records, as the run's refiner was evaluated on them."""
    folder = RunDir(Path(run.path))
    refiner, size = load_refiner(folder), training_size(load_config(folder.config_file))
    loader = Loader(cache, Sampler(cache, indices, BATCH, 0, OrderOptions("sequential")))
    for batch in Prefetcher(loader, torch.device("cpu"), size=size):
        mask = valid_pixels(batch.depth_m, batch.zoe_m, cache.farthest_m)
        refined_m = refiner(batch.rgb01, batch.zoe_m)
        scores = [
            picture_metrics(depth_m, batch.depth_m, mask, cache.farthest_m)[:, SCORE].tolist()
            for depth_m in (batch.zoe_m, refined_m)
        ]
        depths = (one[:, 0].numpy() for one in (batch.zoe_m, refined_m, batch.depth_m))
        yield from map(RefinedFrame, *depths, zip(*scores, strict=True))


def _add_depths(frames: Sequence[ExampleFrame], label: str, run: Run, pseudo: str) -> None:
    """Refine the frames with a run; with a name of the pseudo depth, add that, too.

    Raises `UserError` where the run lacks one of them.
    """
    cache, indices = held_out(run)
    places = {cache.frame_name(int(index)): int(index) for index in indices}
    if any(frame.name not in places for frame in frames):
        raise UserError("these frames are not all among its held-out frames")
    in_order = sorted(frames, key=lambda frame: places[frame.name])
    wanted = np.array([places[frame.name] for frame in in_order])
    for frame, found in zip(in_order, refine(run, cache, wanted), strict=True):
        before, after = found.abs_rel
        if pseudo:
            _add_depth(frame, pseudo, "", found.pseudo_m, found.truth_m, before)
        _add_depth(frame, label, run.name, found.refined_m, found.truth_m, after)


def _frame(cache: Cache, index: int) -> ExampleFrame:
    """A frame without depths but the true one."""
    record = cache.read(index)
    truth_m = record["depth"] * cache.depth_scale
    farthest_m = float(max(truth_m.max(), (record["zoe"] * cache.zoe_scale).max(), 0.1))
    return ExampleFrame(
        name=cache.frame_name(index),
        farthest_m=farthest_m,
        rgb=_jpeg(record["rgb"]),
        truth=_jpeg(depth_colors(truth_m, farthest_m)),
        depths=[],
    )


def _add_depth(
    frame: ExampleFrame,
    label: str,
    run: str,
    depth_m: np.ndarray,
    truth_m: np.ndarray,
    abs_rel: float,
) -> None:
    """Add a depth [H, W] to a frame, with the picture of its errors."""
    colors, errors = depth_colors(depth_m, frame.farthest_m), error_colors(depth_m, truth_m)
    frame.depths.append(ExampleDepth(label, run, abs_rel, _jpeg(colors), _jpeg(errors)))


def css_colors(colored: np.ndarray) -> list[str]:
    """Colours uint8 [1, n, 3] as CSS writes them."""
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in colored[0].tolist()]


def _jpeg(rgb: np.ndarray) -> str:
    """A JPEG of at most WIDEST pixels in width, in base64."""
    height, width = rgb.shape[:2]
    if width > WIDEST:
        size = (WIDEST, max(1, round(height * WIDEST / width)))
        rgb = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    return base64.b64encode(jpeg_bytes(rgb, quality=QUALITY)).decode()
