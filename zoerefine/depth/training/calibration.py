"""Calibration: how far a refiner's corrections are followed, measured on validation scenes.

With the best weights, at the end of training, on scenes that training has not seen. Every scene
counts the same, so a calibration by rooms holds for rooms of this kind. It sets four buffers of the
refiner (zoerefine/depth/model/refiner.py):

- `log_factor`: the single factor that fits the training frames best;
- `limit`: the largest typical correction of a validation frame, by the quantile LIMIT_QUANTILE;
- `strength`: the share of the correction with the least AbsRel, in the geometric mean over scenes,
  where an improvement by a tenth counts the same in every scene. With three scenes or more, the
  smallest share that is worse by no more than one standard error of the difference over scenes
  (Breiman et al. 1984, section 3.4.3), because a weaker correction is the safer one; but by no
  more than MOST_WORSE, so that little is lost where corrections help much;
- `point_strength` and `point_limit`, of a refiner that takes metric points: the same for frames
  with points of several kinds. Depth is measured after the points have corrected it again. The
  strength is the best one: without a correction the points are followed, which is safe, too;
- `spread_factor`: the factor on the predicted spread with which COVERAGE of the pixels lie inside
  the band (split conformal prediction, Lei et al. 2018, with scaled residuals).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoerefine.base.depth_limits import FARTHEST_M, NEAREST_M
from zoerefine.base.ranks import gather_from_all
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.metrics import valid_pixels
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.model.refiner import correction_size
from zoerefine.depth.points.spread import spread

STRENGTHS = np.linspace(0, 1, 21)
POINT_STRENGTHS = np.linspace(0, 1, 5)  # with points, a frame takes longer
LIMIT_QUANTILE = 0.99
COVERAGE = 0.9
LEAST_ABS_REL = 1e-4  # a smaller error counts as this one
MOST_WORSE = 0.02  # of AbsRel, which a smaller strength may cost
LEAST_SCENES = 3  # for a standard error
BINS = 100  # of the histogram of spreads, for each unit of the logarithm
MAX_LOG_RATIO = 10
CENTER = MAX_LOG_RATIO * BINS

Batches = Callable[[], Iterable[DeviceBatch]]


@dataclass(frozen=True)
class FrameErrors:
    """One validation frame.

    Attributes:
        index: in the cache.
        scene: its name.
        size: mean |change - log_factor|.
        abs_rel: at each of STRENGTHS, without a limit.
    """

    index: int
    scene: str
    size: float
    abs_rel: tuple[float, ...]


def reset_calibration(refiner: RefinerNetwork) -> None:
    """Back to the values that change nothing."""
    for name, value in refiner.uncalibrated.items():
        refiner.get_buffer(name).fill_(value)


@torch.no_grad()
def calibrate(
    refiner: RefinerNetwork, batches: Batches, log_factor: float, cache: Cache, dtype: torch.dtype
) -> dict[str, Any] | None:
    """Set a refiner's calibration.

    Under torchrun every rank calls this with its own frames, and all get the same calibration.

    Args:
        refiner: with its best weights.
        batches: makes an iterator over the validation frames.
        log_factor: of the training frames, from `fit_log_scale`.
        cache: has the scene of each frame, and the range of depth.
        dtype: the number format of the forward pass, as in training.

    Returns:
        What results.json says of it; None where no validation frame has a valid pixel. Then the
        calibration is as after `reset_calibration`.
    """
    refiner.eval()
    reset_calibration(refiner)
    frames = measure_frames(refiner, batches(), log_factor, cache, dtype)
    if not frames:
        return None
    found = set_strength(refiner, frames, log_factor, "", MOST_WORSE)
    refiner.log_factor.fill_(log_factor)
    found["spread_factor"] = 1.0
    if refiner.has_confidence:
        found["spread_factor"] = fit_spread(refiner, batches(), cache, dtype)
        refiner.spread_factor.fill_(found["spread_factor"])
    return found


@torch.no_grad()
def calibrate_with_points(
    refiner: RefinerNetwork, batches: Iterable[DeviceBatch], cache: Cache, dtype: torch.dtype
) -> dict[str, Any]:
    """Set the calibration for frames with metric points, after `calibrate`.

    Args:
        batches: the validation frames as `point_inputs.correct` returns them.

    Returns:
        As `calibrate`.
    """
    refiner.eval()
    frames = measure_frames(refiner, batches, 0.0, cache, dtype)
    return set_strength(refiner, frames, 0.0, "point_", 0.0)


def set_strength(
    refiner: RefinerNetwork,
    frames: Sequence[FrameErrors],
    log_factor: float,
    prefix: str,
    most_worse: float,
) -> dict[str, Any]:
    """Set strength and limit by validation frames; returns what results.json says of them."""
    limit = max(float(np.quantile([one.size for one in frames], LIMIT_QUANTILE)), 1e-6)
    table = scene_table(frames, limit)
    chosen = choose(table, most_worse)
    strength, errors = STRENGTHS[chosen], table.mean(0)
    refiner.get_buffer(f"{prefix}limit").fill_(limit)
    refiner.get_buffer(f"{prefix}strength").fill_(strength)
    return {
        "scenes": len(table),
        "frames": len(frames),
        "log_factor": log_factor,
        "strength": float(strength),
        "limit": limit,
        "abs_rel": {
            "single_factor": float(errors[0]),
            "calibrated": float(errors[chosen]),
            "full_strength": float(scene_table(frames, math.inf).mean(0)[-1]),
        },
    }


def measure_frames(
    refiner: RefinerNetwork,
    batches: Iterable[DeviceBatch],
    log_factor: float,
    cache: Cache,
    dtype: torch.dtype,
) -> list[FrameErrors]:
    """The valid frames of all ranks, in the order of the cache."""
    found = []
    for batch in batches:
        change, *_ = predict(refiner, batch, dtype)
        correction = change - log_factor
        mask = valid_pixels(batch.depth_m, batch.zoe_m, cache.farthest_m)
        sizes = correction_size(batch.zoe_m, correction).flatten().tolist()
        strengths = STRENGTHS if batch.hints01 is None else POINT_STRENGTHS
        columns = [
            abs_rel(batch, mask, log_factor + float(share) * correction, cache.farthest_m)
            for share in strengths
        ]
        rows = torch.stack(columns, 1).tolist()
        for k, index in enumerate(batch.index.tolist()):
            if not math.isnan(rows[k][0]):
                scene = cache.clips[cache.frames["clip"][index]].scene
                errors = np.interp(STRENGTHS, strengths, rows[k])
                found.append(FrameErrors(index, scene, sizes[k], tuple(errors)))
    everything = [one for part in gather_from_all(found) for one in part]
    return sorted(everything, key=lambda one: one.index)


def predict(refiner: RefinerNetwork, batch: DeviceBatch, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The bounded change of log depth and, with confidence, the log of its error's scale."""
    with torch.autocast(batch.zoe_m.device.type, dtype, enabled=dtype != torch.float32):
        change, *others = refiner.predict(batch.picture01, batch.zoe_m)
    return (change.clamp(-refiner.max_log, refiner.max_log), *others)


def abs_rel(batch: DeviceBatch, mask: Tensor, change: Tensor, farthest_m: float) -> Tensor:
    """AbsRel of each picture when log depth changes by `change`, [B]; NaN without a valid pixel."""
    depth_m = batch.zoe_m * change.exp()
    if batch.hints01 is not None and batch.points is not None:
        depth_m = spread(depth_m, batch.points)
    depth_m = depth_m.clamp(NEAREST_M, farthest_m)
    errors = torch.where(mask, (depth_m - batch.depth_m).abs() / batch.depth_m, 0.0)
    return errors.sum((1, 2, 3), dtype=torch.float64) / mask.sum((1, 2, 3))


def scene_table(frames: Sequence[FrameErrors], limit: float) -> np.ndarray:
    """AbsRel of each scene at each of STRENGTHS, [scenes, strengths].

    A frame beyond the limit is corrected by a smaller share; between two of STRENGTHS its AbsRel
    is interpolated.
    """
    of_scene: dict[str, list[np.ndarray]] = {}
    for one in frames:
        shares = STRENGTHS * min(1.0, limit / max(one.size, 1e-12)) ** 2
        of_scene.setdefault(one.scene, []).append(np.interp(shares, STRENGTHS, one.abs_rel))
    return np.array([np.mean(rows, axis=0) for _, rows in sorted(of_scene.items())])


def choose(table: np.ndarray, most_worse: float) -> int:
    """The column of the strength to use, from `scene_table`; see the top of this file."""
    logs = np.log(np.maximum(table, LEAST_ABS_REL))
    best = int(logs.mean(0).argmin())
    if len(table) < LEAST_SCENES:
        return best
    worse = logs - logs[:, [best]]
    error = worse.std(0, ddof=1) / math.sqrt(len(table))
    return int(np.argmax(worse.mean(0) <= np.minimum(error, most_worse)))


def fit_spread(
    refiner: RefinerNetwork, batches: Iterable[DeviceBatch], cache: Cache, dtype: torch.dtype
) -> float:
    """The factor on the nominal spread with which COVERAGE of the pixels lie inside the band.

    The share is the mean over scenes. It comes from a histogram of the log of error over spread,
    with bins of width 1/BINS, for each scene.
    """
    histograms: dict[str, Any] = {}
    for batch in batches:
        with torch.autocast(batch.zoe_m.device.type, dtype, enabled=dtype != torch.float32):
            depth_m, spread = refiner.refine(batch.picture01, batch.zoe_m)
        mask = valid_pixels(batch.depth_m, batch.zoe_m, cache.farthest_m)
        for k, index in enumerate(batch.index.tolist()):
            error = (depth_m[k][mask[k]] / batch.depth_m[k][mask[k]]).log().abs()
            ratio = (error / spread[k][mask[k]]).clamp(min=1e-9).log().double()
            bins = (ratio.nan_to_num(MAX_LOG_RATIO) * BINS).ceil().clamp(-CENTER, CENTER) + CENTER
            counts = bins.long().bincount(minlength=2 * CENTER + 1).cpu().numpy()
            scene = cache.clips[cache.frames["clip"][index]].scene
            histograms[scene] = histograms.get(scene, 0) + counts
    total: dict[str, Any] = {}
    for part in gather_from_all(histograms):
        for scene, counts in part.items():
            total[scene] = total.get(scene, 0) + counts
    shares = [total[scene] / total[scene].sum() for scene in sorted(total) if total[scene].any()]
    inside = np.cumsum(np.mean(shares, axis=0))
    return math.exp((int(np.searchsorted(inside, COVERAGE)) - CENTER) / BINS)


FACTOR_BINS = 10_000  # of the histogram, for each unit of the log factor
MAX_LOG_FACTOR = 5.0


def fit_log_scale(batches: Iterable[DeviceBatch], farthest_m: float = FARTHEST_M) -> float:
    """The logarithm of the factor s with the least mean AbsRel over pictures.

    A picture of n valid pixels with pseudo depth z and truth t has, at factor s,

        AbsRel = 1/n sum |s z - t| / t = sum w |s - t/z|,  w = z / (n t)

    so the mean over pictures is least at the weighted median of t/z over the pixels of all
    pictures, with weights w. The median comes from a histogram of log(t/z) with bins of width
    1/FACTOR_BINS, filled in one pass over the pictures.

    Returns:
        log s in [-MAX_LOG_FACTOR, MAX_LOG_FACTOR]; 0 without a valid pixel.
    """
    center = round(MAX_LOG_FACTOR * FACTOR_BINS)
    histogram = np.zeros(2 * center + 1)
    for batch in batches:
        mask = valid_pixels(batch.depth_m, batch.zoe_m, farthest_m)
        for truth_m, zoe_m, valid in zip(batch.depth_m, batch.zoe_m, mask, strict=True):
            ratio = (truth_m[valid] / zoe_m[valid]).double().cpu().numpy()
            bins = np.rint(np.log(ratio) * FACTOR_BINS).astype(np.int64) + center
            weights = 1 / (ratio * max(1, len(ratio)))
            histogram += np.bincount(bins.clip(0, 2 * center), weights, len(histogram))
    if not histogram.any():
        return 0.0
    cumulative = histogram.cumsum()
    median = int(np.searchsorted(cumulative, cumulative[-1] / 2))
    return (median - center) / FACTOR_BINS
