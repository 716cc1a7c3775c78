"""What the closing evaluation adds: by depth, class and speed; edges; distances; flicker."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from zoerefine.data.dataset import Clip
from zoerefine.data.prefetch import DeviceBatch
from zoerefine.metrics import (
    FARTHEST_M,
    DepthMetrics,
    Mean,
    boundary_f1,
    log_error,
    object_distances,
    picture_metrics,
)

RANGES_M = (0.0, 1.0, 2.0, 4.0, FARTHEST_M)  # bounds of the depths that are told apart


class Detail:
    """Collects one depth's figures (pseudo, globally scaled, or refined) over pictures."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, DepthMetrics]] = {
            "ranges": {},
            "classes": {},
            "speeds": {},
        }
        self.edges, self.distance, self.relative, self.flicker = Mean(), Mean(), Mean(), Mean()
        self.last: tuple[Clip, Tensor, Tensor] | None = None

    def add(
        self,
        depth_m: Tensor,
        batch: DeviceBatch,
        mask: Tensor,
        moving: Tensor,
        clips: Sequence[Clip],
    ) -> None:
        """Add pictures [B, 1, H, W] of some clips, frames of a clip in the order of filming.

        `moving` is their `picture_metrics` on moving objects alone.
        """
        for low, high in pairwise(RANGES_M):
            inside = mask & (batch.depth_m > low) & (batch.depth_m <= high)
            rows = picture_metrics(depth_m, batch.depth_m, inside)
            self.group("ranges", f"{low:g}-{high:g} m").add(rows)
        for row, clip in zip(moving, clips, strict=True):
            if clip.classes:
                name = clip.classes[0] if len(clip.classes) == 1 else "several"
                self.group("classes", name).add(row[None])
            if clip.speed:
                self.group("speeds", f"{clip.speed} m/s").add(row[None])
        f1 = boundary_f1(depth_m, batch.depth_m, mask)
        self.edges.add(f1[~f1.isnan()])  # of pictures whose truth has edges
        found = object_distances(depth_m, batch.depth_m, batch.objects, mask)
        self.distance.add((found[:, 0] - found[:, 1]).abs())
        self.relative.add((found[:, 0] - found[:, 1]).abs() / found[:, 1])
        self.add_flicker(log_error(depth_m, batch.depth_m, mask), mask, clips)

    def add_flicker(self, error: Tensor, mask: Tensor, clips: Sequence[Clip]) -> None:
        """How much the log error of a pixel changes from a frame to the next of its clip."""
        for now, valid, clip in zip(error, mask, clips, strict=True):
            if self.last is not None and self.last[0] == clip:
                both = valid & self.last[2]
                if both.any():
                    self.flicker.add((now - self.last[1]).abs()[both].mean()[None])
            self.last = clip, now, valid

    def merge(self, other: "Detail") -> None:
        """Add what another has collected over other clips."""
        for kind, group in other.groups.items():
            for name, metrics in group.items():
                self.group(kind, name).merge(metrics)
        self.edges.merge(other.edges)
        self.distance.merge(other.distance)
        self.relative.merge(other.relative)
        self.flicker.merge(other.flicker)

    def group(self, kind: str, name: str) -> DepthMetrics:
        return self.groups[kind].setdefault(name, DepthMetrics())

    def compute(self) -> dict[str, Any]:
        """Figures by name; those that nothing was seen of are left out."""
        single = {
            "boundary_f1": self.edges.compute(),
            "object_distance_m": self.distance.compute(),
            "object_distance_rel": self.relative.compute(),
            "flicker": self.flicker.compute(),
        }
        groups = {
            kind: {name: found for name, one in sorted(group.items()) if (found := one.compute())}
            for kind, group in self.groups.items()
        }
        return {name: value for name, value in (single | groups).items() if value not in (None, {})}
