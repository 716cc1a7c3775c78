"""Held-out frames as runs refine them, as pictures for the report."""

import base64
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from zoerefine.base.config import load_config
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
    (label, first), *others = runs
    cache, indices = held_out(first)
    refined, before, after = _refine_all(load_refiner(RunDir(Path(first.path))), cache, indices)
    gain = (before - after).astype(np.float64)
    order = [i for i in np.argsort(-gain, kind="stable").tolist() if np.isfinite(gain[i])]
    chosen = list(dict.fromkeys([*order[:count], *order[::-1][:count]]))
    frames = [_frame(cache, int(indices[i])) for i in chosen]
    for frame, i in zip(frames, chosen, strict=True):
        _add_depth(frame, cache, int(indices[i]), pseudo, "", None, before[i])
        _add_depth(frame, cache, int(indices[i]), label, first.name, refined[i], after[i])
    missing = {}
    for name, run in others:
        try:
            _add_depths(frames, name, run)
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
    ours, theirs = (
        _refine_all(load_refiner(RunDir(Path(run.path))), cache, middle)[0][0]
        for run in (first, second)
    )
    record = cache.read(index)
    title = f"{cache.frame_name(index)}   |   {cache.label}"
    truth_m = record["depth"] * cache.depth_scale
    left, right = run_labels(first, second)
    figure = panel_figure(record["rgb"], ours, theirs, truth_m, left, title, refined_label=right)
    save_panel(figure, path)


def held_out(run: Run) -> tuple[Cache, np.ndarray]:
    """The run's cache, and its records of test scenes (or, without test scenes, of validation).

    Raises `UserError` where the data are others than the run recorded.
    """
    cfg = load_config(RunDir(Path(run.path)).config_file)
    cache, split = prepare(cfg)
    recorded, now = run.provenance.get("dataset_digest"), cache.dataset_digest
    if recorded and now and recorded not in (now, cache.records_digest):  # of earlier versions
        raise UserError(f"the data in {cfg.DATA.ROOT} have changed since {run.path} was trained")
    indices = cache.indices(split.test or split.val)
    if not len(indices):
        raise UserError(f"{run.path} has no held-out scenes")
    return cache, indices


@torch.no_grad()
def _refine_all(
    refiner: torch.nn.Module, cache: Cache, indices: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Refined depth [H, W] of every frame, and AbsRel before and after."""
    loader = Loader(cache, Sampler(cache, indices, BATCH, 0, OrderOptions("sequential")))
    device = torch.device("cpu")
    refined, before, after = [], [], []
    for batch in Prefetcher(loader, device):
        mask = valid_pixels(batch.depth_m, batch.zoe_m, cache.farthest_m)
        metrics = partial(picture_metrics, farthest_m=cache.farthest_m)
        depth_m = refiner(batch.rgb01, batch.zoe_m)
        refined += list(depth_m[:, 0].numpy())
        before.append(metrics(batch.zoe_m, batch.depth_m, mask=mask)[:, SCORE])
        after.append(metrics(depth_m, batch.depth_m, mask=mask)[:, SCORE])
    return refined, torch.cat(before).numpy(), torch.cat(after).numpy()


def _add_depths(frames: Sequence[ExampleFrame], label: str, run: Run) -> None:
    """Refine the same frames with another run. Raises `UserError` where it lacks one of them."""
    cache, indices = held_out(run)
    places = {cache.frame_name(int(index)): int(index) for index in indices}
    if any(frame.name not in places for frame in frames):
        raise UserError("these frames are not all among its held-out frames")
    wanted = [places[frame.name] for frame in frames]
    ordered = np.array(sorted(wanted))
    refined, _, after = _refine_all(load_refiner(RunDir(Path(run.path))), cache, ordered)
    for frame, index in zip(frames, wanted, strict=True):
        row = int(np.searchsorted(ordered, index))
        _add_depth(frame, cache, index, label, run.name, refined[row], after[row])


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
    cache: Cache,
    index: int,
    label: str,
    run: str,
    depth_m: np.ndarray | None,
    abs_rel: float,
) -> None:
    """Add a depth [H, W] to a frame, or its pseudo depth."""
    record = cache.read(index)
    if depth_m is None:
        depth_m = record["zoe"] * cache.zoe_scale
    colors = depth_colors(depth_m, frame.farthest_m)
    errors = error_colors(depth_m, record["depth"] * cache.depth_scale)
    frame.depths.append(ExampleDepth(label, run, float(abs_rel), _jpeg(colors), _jpeg(errors)))


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
