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
MEANS = ("boundary_f1", "object_distance_m", "object_distance_rel", "flicker")  # over pictures
GROUPS = ("ranges", "classes", "speeds")


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
        detail: whether to add `DetailedMetrics`.
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
    for one in sums.details.values():
        one.last = None  # kept for comparison with the next frame: ranks need not send it
    total, *others = gather_from_all(sums)
    for part in others:
        total.merge(part)
    return total.report()


class EvaluationSums:
    """Sums of metrics of each depth, by group of pictures: all, a scene's, moving objects."""

    def __init__(self, detail: bool, farthest_m: float) -> None:
        self.detail, self.farthest_m = detail, farthest_m
        self.groups: dict[str, dict[str, metrics.DepthMetrics]] = {}
        self.details: dict[str, DetailedMetrics] = {}
        self.pictures, self.losses = 0, dict[str, float]()
        self.coverage: dict[str, metrics.RunningMean] = {}

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
            for name, chosen in groups.items():
                self.group(name, which).add(on_all[chosen])
            self.group("objects", which).add(on_objects)
            if self.detail:
                self.details.setdefault(which, DetailedMetrics(self.farthest_m)).add(
                    depth_m, batch, mask, on_objects, clips, places
                )

    def add_losses(self, loss: Loss, refined_m: Tensor, batch: DeviceBatch) -> None:
        """Add the loss of each picture and its terms, so that the grouping does not matter."""
        with each_rank_alone():  # the others may have fewer pictures
            total, terms = loss.of_each_picture(
                refined_m, batch.zoe_m, batch.depth_m, batch.objects, batch.rgb01
            )
        self.pictures += len(total)
        for row in torch.stack([total, *terms.values()], 1).double().tolist():
            for name, value in zip(("loss", *terms), row, strict=True):
                self.losses[name] = self.losses.get(name, 0.0) + value

    def add_coverage(
        self, refined_m: Tensor, spread: Tensor, batch: DeviceBatch, clips: Sequence[Clip]
    ) -> None:
        """Add the share of each picture's valid pixels inside the band."""
        mask = metrics.valid_pixels(batch.depth_m, batch.zoe_m, self.farthest_m)
        shares = metrics.coverage(refined_m, spread, batch.depth_m, mask).cpu().numpy()
        for name, chosen in groups_of(clips).items():
            found = torch.from_numpy(shares[chosen & ~np.isnan(shares)])
            self.coverage.setdefault(name, metrics.RunningMean()).add(found)

    def group(self, name: str, which: str) -> metrics.DepthMetrics:
        return self.groups.setdefault(name, {}).setdefault(which, metrics.DepthMetrics())

    def merge(self, other: "EvaluationSums") -> None:
        """Add another's sums over other clips."""
        for name, group in other.groups.items():
            for which, sums in group.items():
                self.group(name, which).merge(sums)
        for name, mean in other.coverage.items():
            self.coverage.setdefault(name, metrics.RunningMean()).merge(mean)
        for which, detail in other.details.items():
            self.details.setdefault(which, DetailedMetrics(self.farthest_m)).merge(detail)
        self.pictures += other.pictures
        for name, value in other.losses.items():
            self.losses[name] = self.losses.get(name, 0.0) + value

    def report(self) -> dict[str, Any]:
        """The figures, as `evaluate` returns them."""
        computed = {
            name: with_ratio({which: sums.compute() for which, sums in group.items()})
            for name, group in self.groups.items()
        }
        for name, mean in self.coverage.items():
            if mean.count:
                computed[name]["refined"][COVERAGE] = mean.compute()
        scenes = {
            name.removeprefix("scenes/"): values
            for name, values in sorted(computed.items())
            if name.startswith("scenes/")
        }
        none = with_ratio({})
        report = {
            **computed.get("all", none), "objects": computed.get("objects", none), "scenes": scenes
        }  # fmt: skip
        if self.detail:
            details = {which: one.compute() for which, one in self.details.items()}
            report["detail"] = with_ratio(details)
        if self.losses:
            report["losses"] = {k: value / self.pictures for k, value in self.losses.items()}
        return report


def groups_of(clips: Sequence[Clip]) -> dict[str, np.ndarray]:
    """Which pictures of a batch are in each group, bool [B]: all of them, and those of a scene."""
    scenes = np.array([clip.scene for clip in clips])
    of_scenes = {f"scenes/{scene}": scenes == scene for scene in np.unique(scenes)}
    return {"all": np.full(len(clips), True), **of_scenes}


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
    loses it. `others` are other scenes, because frames of one clip are too alike.
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


class DetailedMetrics:
    """Sums of one depth's figures (pseudo, globally scaled, or refined) over pictures."""

    def __init__(self, farthest_m: float) -> None:
        self.farthest_m = farthest_m
        self.ranges_m = depth_ranges(farthest_m)
        self.means = {name: metrics.RunningMean() for name in MEANS}
        self.groups: dict[str, dict[str, metrics.DepthMetrics]] = {name: {} for name in GROUPS}
        # The last frame: its place, log error and mask.
        self.last: tuple[int, Tensor, Tensor] | None = None

    def add(
        self,
        depth_m: Tensor,
        batch: DeviceBatch,
        mask: Tensor,
        moving: np.ndarray,
        clips: Sequence[Clip],
        places: Sequence[int],
    ) -> None:
        """Add a batch of pictures, the frames of a clip in the order of filming.

        Args:
            depth_m: float32 [B, 1, H, W], metres.
            batch: the truth and the objects.
            mask: bool [B, 1, H, W], valid pixels.
            moving: `picture_metrics` on the pixels of moving objects, as an array.
            clips, places: the clip of each picture, and its place in it, see `Cache.places`.
        """
        for low, high in pairwise(self.ranges_m):
            inside = mask & (batch.depth_m > low) & (batch.depth_m <= high)
            rows = metrics.picture_metrics(depth_m, batch.depth_m, inside, self.farthest_m)
            self.group("ranges", f"{low:g}-{high:g} m").add(rows)
        for row, clip in zip(moving, clips, strict=True):
            if clip.classes:
                name = clip.classes[0] if len(clip.classes) == 1 else "several"
                self.group("classes", name).add(row[None])
            if clip.speed:
                self.group("speeds", f"{clip.speed} m/s").add(row[None])
        f1 = metrics.boundary_f1(depth_m, batch.depth_m, mask)
        self.means["boundary_f1"].add(f1[~f1.isnan()])  # of pictures whose truth has edges
        ours, true = metrics.object_distances(depth_m, batch.depth_m, batch.objects, mask).unbind(1)
        self.means["object_distance_m"].add((ours - true).abs())
        self.means["object_distance_rel"].add((ours - true).abs() / true)
        error = metrics.log_error(depth_m, batch.depth_m, mask, self.farthest_m)
        self.add_flicker(error, mask, places)

    def add_flicker(self, error: Tensor, mask: Tensor, places: Sequence[int]) -> None:
        """Add the mean change of a pixel's log error between consecutive frames of a clip."""
        for now, valid, place in zip(error, mask, places, strict=True):
            if self.last is not None and self.last[0] == place - 1:
                both = valid & self.last[2]
                if both.any():
                    self.means["flicker"].add((now - self.last[1]).abs()[both].mean()[None])
            self.last = place, now, valid

    def merge(self, other: "DetailedMetrics") -> None:
        """Add another's sums over other clips."""
        for kind, group in other.groups.items():
            for name, sums in group.items():
                self.group(kind, name).merge(sums)
        for name, mean in other.means.items():
            self.means[name].merge(mean)

    def group(self, kind: str, name: str) -> metrics.DepthMetrics:
        return self.groups[kind].setdefault(name, metrics.DepthMetrics())

    def compute(self) -> dict[str, Any]:
        """Figures by name; those without data are left out."""
        single = {name: mean.compute() for name, mean in self.means.items()}
        groups = {
            kind: {name: found for name, one in sorted(group.items()) if (found := one.compute())}
            for kind, group in self.groups.items()
        }
        return {name: value for name, value in (single | groups).items() if value not in (None, {})}
