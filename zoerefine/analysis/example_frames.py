"""The held-out frames that a run improves most and least, as pictures for the report."""

import base64
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from zoerefine.analysis.group_names import group_names, shortened
from zoerefine.analysis.run_record import Run, differing_keys
from zoerefine.config import load_config
from zoerefine.data.cache import Cache
from zoerefine.data.loader import Loader
from zoerefine.data.prefetch import Prefetcher
from zoerefine.data.sampler import OrderOptions, Sampler
from zoerefine.errors import UserError
from zoerefine.image_files import jpeg_bytes
from zoerefine.metrics import NAMES, SELECTION_METRIC, picture_metrics, valid_pixels
from zoerefine.pictures import depth_colors, error_colors, panel
from zoerefine.run_dir import RunDir
from zoerefine.training.checkpoint import load_refiner
from zoerefine.training.job import prepare

BATCH = 16
SCORE = NAMES.index(SELECTION_METRIC)  # column of `picture_metrics`


@dataclass(frozen=True)
class ExampleFrame:
    """A frame before and after refinement.

    `before` and `after` are AbsRel; the pictures are JPEG in base64, both depths on one scale and
    both errors on another.
    """

    name: str
    before: float
    after: float
    rgb: str
    pseudo: str
    refined: str
    pseudo_error: str
    refined_error: str


def best_and_worst(run: Run, count: int = 2) -> list[ExampleFrame]:
    """The held-out frames that improve most, then those that improve least.

    Raises `UserError` where the run's weights or its data no longer exist.
    """
    refiner = load_refiner(RunDir(Path(run.path)))
    cache, indices = held_out(run)
    refined, before, after = _refine_all(refiner, cache, indices)
    order = np.argsort(after - before, kind="stable")
    chosen = dict.fromkeys([*order[:count].tolist(), *order[::-1][:count].tolist()])
    return [
        _picture(cache, int(indices[i]), refined[i], float(before[i]), float(after[i]))
        for i in chosen
    ]


def draw_side_by_side(first: Run, second: Run, path: Path) -> None:
    """Draw one held-out frame of the first run as both runs refine it, each under its settings.

    Raises `UserError` where weights or data no longer exist.
    """
    cache, indices = held_out(first)
    index = int(indices[len(indices) // 2])
    middle = indices[[len(indices) // 2]]
    ours, theirs = (
        _refine_all(load_refiner(RunDir(Path(run.path))), cache, middle)[0][0]
        for run in (first, second)
    )
    record = cache.read(index)
    title = f"{cache.frame_name(index)}   |   {cache.label}"
    truth_m = record["depth"] * cache.depth_scale
    names = group_names([[first], [second]], differing_keys([first, second]))
    left, right = (f"{letter}: {shortened(n, 36)}" for letter, n in zip("AB", names, strict=True))
    panel(path, record["rgb"], ours, theirs, truth_m, left, title, refined_label=right)


def held_out(run: Run) -> tuple[Cache, np.ndarray]:
    """The run's cache, and its records of test scenes (or, without test scenes, of validation)."""
    cache, split = prepare(load_config(RunDir(Path(run.path)).config_file))
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
        mask = valid_pixels(batch.depth_m, batch.zoe_m)
        depth_m = refiner(batch.rgb01, batch.zoe_m)
        refined += list(depth_m[:, 0].numpy())
        before.append(picture_metrics(batch.zoe_m, batch.depth_m, mask)[:, SCORE])
        after.append(picture_metrics(depth_m, batch.depth_m, mask)[:, SCORE])
    return refined, torch.cat(before).numpy(), torch.cat(after).numpy()


def _picture(
    cache: Cache, index: int, refined_m: np.ndarray, before: float, after: float
) -> ExampleFrame:
    record = cache.read(index)
    truth_m = record["depth"] * cache.depth_scale
    zoe_m = record["zoe"] * cache.zoe_scale
    farthest = float(max(truth_m.max(), zoe_m.max(), 0.1))
    return ExampleFrame(
        name=cache.frame_name(index),
        before=before,
        after=after,
        rgb=_jpeg(record["rgb"]),
        pseudo=_jpeg(depth_colors(zoe_m, farthest)),
        refined=_jpeg(depth_colors(refined_m, farthest)),
        pseudo_error=_jpeg(error_colors(zoe_m, truth_m)),
        refined_error=_jpeg(error_colors(refined_m, truth_m)),
    )


def _jpeg(rgb: np.ndarray) -> str:
    return base64.b64encode(jpeg_bytes(rgb, quality=88)).decode()
