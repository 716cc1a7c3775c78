"""Held-out metrics of the pseudo depth, the globally scaled one, and the refined depth.

With metric points also of the depth that they alone correct, and of refined depth with them.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoerefine.base.ranks import each_rank_alone, gather_from_all
from zoerefine.depth import metrics
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.dataset import Clip
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.loss import Loss
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.points.spread import spread, spread_twice
from zoerefine.depth.training.point_inputs import correct, evaluated_points

Depths = dict[str, Tensor]
COVERAGE = "coverage90"  # share of the valid pixels inside the 90% band
DETAIL = "detail"  # the part of the report for `EvaluationSums.add_details`


@torch.no_grad()
def evaluate(
    refiner: nn.Module,
    batches: Iterable[DeviceBatch],
    log_scale: float,
    cache: Cache,
    dtype: torch.dtype,
    detail: bool = False,
    loss: Loss | None = None,
    points: int = 0,
) -> dict[str, Any]:
    """Metrics over all pictures, over moving objects, and by scene.

    Under torchrun every rank calls this with its own clips and gets the figures of all of them.

    Args:
        refiner: in any mode; it is evaluated in evaluation mode.
        batches: the pictures, in any grouping; with `detail` in the order of filming.
        log_scale: from `fit_log_scale`.
        cache: has the clip and scene of each picture, and the range of depth.
        dtype: the number format of the forward pass, as in training.
        detail: whether to add what `EvaluationSums.add_details` measures.
        loss: also computed for the refined depth, as in training; with invalid pixels masked.
        points: random metric points of each picture.

    Returns:
        {"pseudo": metrics, "global_scale": metrics, "refined": metrics (with COVERAGE where the
         refiner has confidence), with points "points" and "refined_points": metrics,
         "ratio": {metric: refined / pseudo}, "objects": {the same},
         "scenes": {scene: {the same}}, with detail "detail": {the same},
         with a loss "losses": {"loss": number, term: number}, means over pictures}
    """
    refiner.eval()
    sums = EvaluationSums(detail, cache.farthest_m)
    for batch in batches:
        index = batch.index.numpy()
        clips = [cache.clips[i] for i in cache.frames["clip"][index]]
        depths, band = predict_all(refiner, batch, log_scale, dtype)
        if points:
            depths |= predict_with_points(refiner, batch, depths["refined"], points, dtype)
        sums.add(depths, batch, clips, cache.places[index].tolist())
        if band is not None:
            sums.add_coverage(depths["refined"], band, batch, clips)
        if loss:
            sums.add_losses(loss, depths["refined"], batch)
    sums.last.clear()  # kept for comparison with the next frame: ranks need not send it
    total, *others = gather_from_all(sums)
    for part in others:
        total.merge(part)
    return total.report()


class EvaluationSums:
    """Sums over pictures by their path in the report, such as ("scenes", "kitchen", "refined")."""

    def __init__(self, detail: bool, farthest_m: float) -> None:
        self.detail, self.farthest_m = detail, farthest_m
        self.means: dict[tuple[str, ...], metrics.RunningMean] = {}
        # The last frame of each depth: its place, log error and mask.
        self.last: dict[str, tuple[int, Tensor, Tensor]] = {}

    def add_numbers(self, values: Tensor | np.ndarray, *path: str) -> None:
        """Add numbers [n]."""
        self.means.setdefault(path, metrics.RunningMean()).add(values)

    def add_metrics(self, rows: Tensor | np.ndarray, *path: str) -> None:
        """Add pictures' metrics, of `picture_metrics`."""
        self.means.setdefault(path, metrics.DepthMetrics()).add(rows)

    def add(
        self, depths: Depths, batch: DeviceBatch, clips: Sequence[Clip], places: Sequence[int]
    ) -> None:
        """Add the depths of a batch, with the clips and places of its pictures."""
        mask = metrics.valid_pixels(batch.depth_m, batch.zoe_m, self.farthest_m)
        moving = mask & (batch.objects > 0)
        masks, truth_m = torch.cat([mask, moving]), torch.cat([batch.depth_m] * 2)
        found = [
            metrics.picture_metrics(torch.cat([depth_m] * 2), truth_m, masks, self.farthest_m)
            for depth_m in depths.values()
        ]
        rows = torch.stack(found).cpu().numpy()  # [depths, 2 B, metrics]: a GPU is waited for once
        groups = groups_of(clips)
        for (which, depth_m), of_depth in zip(depths.items(), rows, strict=True):
            on_all, on_objects = np.split(of_depth, 2)
            for path, chosen in groups.items():
                self.add_metrics(on_all[chosen], *path, which)
            self.add_metrics(on_objects, "objects", which)
            if self.detail:
                self.add_details(which, depth_m, batch, mask, on_objects, clips)
                error = metrics.log_error(depth_m, batch.depth_m, mask, self.farthest_m)
                self.add_flicker(which, error, mask, places)

    def add_details(
        self,
        which: str,
        depth_m: Tensor,
        batch: DeviceBatch,
        mask: Tensor,
        moving: np.ndarray,
        clips: Sequence[Clip],
    ) -> None:
        """Add one depth by range, and by class and speed of moving objects; edges and distances.

        Args:
            which: of the depths; `depth_m` float32 [B, 1, H, W], metres.
            mask: bool [B, 1, H, W], valid pixels.
            moving: `picture_metrics` on the pixels of moving objects, as an array.
            clips: of each picture.
        """
        path = DETAIL, which
        f1 = metrics.boundary_f1(depth_m, batch.depth_m, mask)
        self.add_numbers(f1[~f1.isnan()], *path, "boundary_f1")  # where the truth has edges
        ours, true = metrics.object_distances(depth_m, batch.depth_m, batch.objects, mask).unbind(1)
        self.add_numbers((ours - true).abs(), *path, "object_distance_m")
        self.add_numbers((ours - true).abs() / true, *path, "object_distance_rel")
        for low, high in pairwise(depth_ranges(self.farthest_m)):
            inside = mask & (batch.depth_m > low) & (batch.depth_m <= high)
            rows = metrics.picture_metrics(depth_m, batch.depth_m, inside, self.farthest_m)
            self.add_metrics(rows, *path, "ranges", f"{low:g}-{high:g} m")
        for row, clip in zip(moving, clips, strict=True):
            if clip.classes:
                name = clip.classes[0] if len(clip.classes) == 1 else "several"
                self.add_metrics(row[None], *path, "classes", name)
            if clip.speed:
                self.add_metrics(row[None], *path, "speeds", f"{clip.speed} m/s")

    def add_flicker(self, which: str, error: Tensor, mask: Tensor, places: Sequence[int]) -> None:
        """Add the mean change of a pixel's log error between consecutive frames of a clip.

        Frames come in the order of filming; `places` as in `Cache.places`.
        """
        for now, valid, place in zip(error, mask, places, strict=True):
            last_place, last_error, last_valid = self.last.get(which, (None, now, valid))
            both = valid & last_valid
            if last_place == place - 1 and both.any():
                change = (now - last_error).abs()[both].mean()[None]
                self.add_numbers(change, DETAIL, which, "flicker")
            self.last[which] = place, now, valid

    def add_losses(self, loss: Loss, refined_m: Tensor, batch: DeviceBatch) -> None:
        """Add the loss of each picture and its terms, so that the grouping does not matter."""
        with each_rank_alone():  # the others may have fewer pictures
            total, terms = loss.of_each_picture(
                refined_m, batch.zoe_m, batch.depth_m, batch.objects, batch.rgb01
            )
        for name, values in {"loss": total, **terms}.items():
            self.add_numbers(values, "losses", name)

    def add_coverage(
        self, refined_m: Tensor, spread: Tensor, batch: DeviceBatch, clips: Sequence[Clip]
    ) -> None:
        """Add the share of each picture's valid pixels inside the band."""
        mask = metrics.valid_pixels(batch.depth_m, batch.zoe_m, self.farthest_m)
        shares = metrics.coverage(refined_m, spread, batch.depth_m, mask).cpu().numpy()
        for path, chosen in groups_of(clips).items():
            self.add_numbers(shares[chosen & ~np.isnan(shares)], *path, "refined", COVERAGE)

    def merge(self, other: "EvaluationSums") -> None:
        """Add another's sums over other clips."""
        for path, mean in other.means.items():
            self.means.setdefault(path, type(mean)()).merge(mean)

    def report(self) -> dict[str, Any]:
        """The figures, as `evaluate` returns them."""
        tree: dict[str, Any] = {"all": {}, "objects": {}, "scenes": {}, DETAIL: {}}
        for path, mean in self.means.items():
            if not mean.count and (path[0] == DETAIL or path[-1] == COVERAGE):
                continue
            place = tree
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = mean.compute()
        report = {
            **with_ratio(tree["all"]),
            "objects": with_ratio(tree["objects"]),
            "scenes": {name: with_ratio(one) for name, one in sorted(tree["scenes"].items())},
        }
        if self.detail:
            report[DETAIL] = with_ratio(tree[DETAIL])
        return report | ({"losses": tree["losses"]} if "losses" in tree else {})


def groups_of(clips: Sequence[Clip]) -> dict[tuple[str, ...], np.ndarray]:
    """Which pictures of a batch are in each group, bool [B]: all of them, and those of a scene."""
    scenes = np.array([clip.scene for clip in clips])
    groups: dict[tuple[str, ...], np.ndarray] = {("all",): np.full(len(clips), True)}
    return groups | {("scenes", str(scene)): scenes == scene for scene in np.unique(scenes)}


def with_ratio(depths: dict[str, Any]) -> dict[str, Any]:
    """The figures of several depths, and "ratio": the refined depth's over the pseudo depth's."""
    return depths | {"ratio": metrics.ratios(depths.get("refined", {}), depths.get("pseudo", {}))}


def predict_all(
    refiner: nn.Module, batch: DeviceBatch, log_scale: float, dtype: torch.dtype
) -> tuple[Depths, Tensor | None]:
    """The three depths that are compared, each float32 [B, 1, H, W], metres, and the spread."""
    band = None
    with torch.autocast(batch.zoe_m.device.type, dtype, enabled=dtype != torch.float32):
        if isinstance(refiner, RefinerNetwork) and refiner.has_confidence:
            refined, band = refiner.refine(batch.picture01, batch.zoe_m)
        else:
            refined = refiner(batch.picture01, batch.zoe_m)
    depths = {
        "pseudo": batch.zoe_m,
        "global_scale": batch.zoe_m * math.exp(log_scale),
        "refined": refined,
    }
    return depths, band


def predict_with_points(
    refiner: nn.Module, batch: DeviceBatch, refined_m: Tensor, count: int, dtype: torch.dtype
) -> Depths:
    """The depth that simulated points alone correct, and the refined depth with them.

    Without an input for points they are spread over the refined depth.
    """
    points = evaluated_points(batch, count)
    if isinstance(refiner, RefinerNetwork) and refiner.takes_points:
        seen = correct(batch, points)
        with torch.autocast(batch.zoe_m.device.type, dtype, enabled=dtype != torch.float32):
            refined_m = refiner(seen.picture01, seen.zoe_m)
    return {
        "points": spread_twice(batch.zoe_m, points),
        "refined_points": spread(refined_m.float(), points),
    }


@torch.no_grad()
def evaluate_shuffled(
    refiner: nn.Module,
    batches: Iterable[DeviceBatch],
    others: Iterable[DeviceBatch],
    dtype: torch.dtype,
    farthest_m: float,
) -> dict[str, float]:
    """The refiner's metrics when each picture gets a pseudo depth from `others`.

    A refiner that predicts depth from RGB alone keeps its accuracy; one that uses the pseudo depth
    loses it. `others` are of other scenes, because frames of one clip are too alike, and endless.
    """
    refiner.eval()
    sums = metrics.DepthMetrics()
    for batch, other in zip(batches, others, strict=False):
        repeats = -(-len(batch.zoe_m) // len(other.zoe_m))
        zoe_m = other.zoe_m.repeat(repeats, 1, 1, 1)[: len(batch.zoe_m)]
        with torch.autocast(zoe_m.device.type, dtype, enabled=dtype != torch.float32):
            refined = refiner(batch.rgb01, zoe_m)
        mask = metrics.valid_pixels(batch.depth_m, zoe_m, farthest_m)
        sums.add(metrics.picture_metrics(refined, batch.depth_m, mask, farthest_m))
    return sums.compute()


def depth_ranges(farthest_m: float) -> list[float]:
    """Bounds of the depth ranges, metres: 0, 1, 2, 4, ... and `farthest_m`.

    The last range spans at least a factor of 2.
    """
    bounds = [0.0]
    bound = 1.0
    while 2 * bound <= farthest_m:
        bounds.append(bound)
        bound *= 2
    return [*bounds, farthest_m]
