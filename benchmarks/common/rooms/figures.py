"""Figures of a depth in each room: means over the room's frames, in the order of filming.

Flicker is the mean change of a pixel's log error between neighbouring frames of a clip:
|(log d_t - log d_t-1) - (log truth_t - log truth_t-1)|. What changes in the truth does not count.
Nothing is warped, so with a moving camera an error that stays on its surface counts, too; pairs of
frames that show another view (more than SAME_VIEW of change at half of the pixels) are left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from zoerefine.base.machine.device import pick_device
from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.dataset import Clip
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.prefetch import DeviceBatch, Prefetcher
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.metrics import (
    NAMES,
    RunningMean,
    boundary_f1,
    log_error,
    picture_metrics,
    valid_pixels,
)

RING = 0.08  # width of the border ring, as a share of a side
LEAST_RING_PIXELS = 30  # with fewer valid pixels in the ring, a frame is left out of its figures
SAME_VIEW = 0.1
PICTURES = 16  # a batch
ABS_REL = NAMES.index("abs_rel")
COVERAGE = "coverage of the 90% band"
MEASURES = {"AbsRel": "AbsRel", "delta1": "share", "SILog": "SILog", "boundary F1": "F1",
            "border ring": "AbsRel", "inside": "AbsRel", "flicker": "log depth",
            COVERAGE: "share"}  # fmt: skip  # and their units


@dataclass(frozen=True)
class Predicted:
    """Depth in metres and the half-width of its 90% band in log depth, both [B, 1, H, W]."""

    depth_m: Tensor
    spread: Tensor | None = None


Side = Callable[[DeviceBatch], Predicted]
Figures = dict[str, dict[str, float]]  # of a side: each measure of each room


@torch.no_grad()
def figures_of(
    sides: Mapping[str, Side], cache: Cache, scenes: tuple[str, ...]
) -> dict[str, Figures]:
    """The figures of every side in some scenes of a cache."""
    sums = {name: RoomMeans() for name in sides}
    for batch in frames_in_order(cache, scenes):
        clips = [cache.clips[i] for i in cache.frames["clip"][batch.index.numpy()]]
        for name, side in sides.items():
            sums[name].add(side(batch), batch, clips)
    return {name: one.compute() for name, one in sums.items()}


def frames_in_order(cache: Cache, scenes: tuple[str, ...]) -> Prefetcher:
    """The frames of some scenes, each once, in the order of filming."""
    order = OrderOptions("sequential")
    sampler = Sampler(cache, cache.indices(scenes), PICTURES, 0, order)
    return Prefetcher(Loader(cache, sampler), pick_device(), size=(cache.height, cache.width))


class RoomMeans:
    """Running means of one side's figures, by room."""

    def __init__(self) -> None:
        self.means: dict[str, dict[str, RunningMean]] = {}
        self.last: tuple[Clip, Tensor, Tensor, Tensor] | None = None

    def add(self, predicted: Predicted, batch: DeviceBatch, clips: list[Clip]) -> None:
        """Add a batch; `clips` has the clip of each of its frames."""
        mask = valid_pixels(batch.depth_m, batch.zoe_m)
        error = log_error(predicted.depth_m, batch.depth_m, mask)  # [B, 1, H, W]
        columns = frame_figures(predicted, batch.depth_m, mask, error)
        columns["flicker"] = self.flicker(error, batch.depth_m, mask, clips)
        for name, values in columns.items():
            for value, clip in zip(values, clips, strict=True):
                if not value.isnan():
                    room = self.means.setdefault(clip.scene, {})
                    room.setdefault(name, RunningMean()).add(value[None])

    def flicker(self, error: Tensor, truth_m: Tensor, mask: Tensor, clips: list[Clip]) -> Tensor:
        """Change of the log error since the last frame of the clip, [B]; NaN where it has none."""
        found = torch.full((len(clips),), torch.nan, dtype=torch.float64)
        for k, clip in enumerate(clips):
            if self.last is not None and self.last[0] == clip:
                _, last_error, last_truth, last_mask = self.last
                both = mask[k] & last_mask
                change = (truth_m[k][both] / last_truth[both]).log().abs()
                if len(change) and change.median() <= SAME_VIEW:
                    found[k] = (error[k] - last_error)[both].abs().double().mean()
            self.last = clip, error[k], truth_m[k], mask[k]
        return found

    def compute(self) -> Figures:
        """The means."""
        return {
            room: {name: mean.compute() for name, mean in means.items()}
            for room, means in self.means.items()
        }


def frame_figures(
    predicted: Predicted, truth_m: Tensor, mask: Tensor, error: Tensor
) -> dict[str, Tensor]:
    """Each measure of each frame, [B]; NaN where a frame has none."""
    metrics = picture_metrics(predicted.depth_m, truth_m, mask)
    found = {name: metrics[:, NAMES.index(name.lower().replace("absrel", "abs_rel"))]
             for name in ("AbsRel", "delta1", "SILog")}  # fmt: skip
    found["boundary F1"] = boundary_f1(predicted.depth_m, truth_m, mask)
    ring = border_ring(mask)
    enough = (mask & ring).sum((1, 2, 3)) >= LEAST_RING_PIXELS
    for name, part in (("border ring", mask & ring), ("inside", mask & ~ring)):
        values = picture_metrics(predicted.depth_m, truth_m, part)[:, ABS_REL]
        found[name] = torch.where(enough, values, torch.nan)
    if predicted.spread is not None:
        within = (error.abs() <= predicted.spread) & mask
        found[COVERAGE] = within.sum((1, 2, 3)).double() / mask.sum((1, 2, 3))
    return found


def border_ring(mask: Tensor) -> Tensor:
    """The pixels less than RING of a side's length from an edge, bool [1, 1, H, W]."""
    height, width = mask.shape[-2:]
    rows, columns = round(RING * height), round(RING * width)
    ring = torch.ones(1, 1, height, width, dtype=torch.bool, device=mask.device)
    ring[..., rows : height - rows, columns : width - columns] = False
    return ring
