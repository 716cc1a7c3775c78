"""Metrics of the final evaluation: by depth range, class and speed; edges, distances, flicker."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from zoerefine.depth import metrics
from zoerefine.depth.data.dataset import Clip
from zoerefine.depth.data.loading.prefetch import DeviceBatch

MEANS = ("boundary_f1", "object_distance_m", "object_distance_rel", "flicker")  # over pictures
GROUPS = ("ranges", "classes", "speeds")


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
