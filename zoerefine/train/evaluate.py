"""Held-out metrics: the pseudo depth's own, a global scale's, and the refiner's, side by side."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoerefine.data.cache import Cache
from zoerefine.data.dataset import Clip
from zoerefine.data.prefetch import DeviceBatch
from zoerefine.metrics import DepthMetrics, counted, picture_metrics, shares
from zoerefine.ranks import from_all
from zoerefine.train.detail import Detail

Depths = dict[str, Tensor]


def fit_log_scale(batches: Iterable[DeviceBatch]) -> float:
    """The best single factor for the pseudo depth, as a logarithm: the trivial baseline.

    The median over pictures of each picture's median log(truth / pseudo), on training pictures.
    """
    medians = []
    for batch in batches:
        mask = counted(batch.depth_m, batch.zoe_m)
        for truth, zoe, valid in zip(batch.depth_m, batch.zoe_m, mask, strict=True):
            if valid.any():
                medians.append((truth[valid].log() - zoe[valid].log()).median().item())
    return float(np.median(medians)) if medians else 0.0


@torch.no_grad()
def evaluate(
    refiner: nn.Module,
    batches: Iterable[DeviceBatch],
    log_scale: float,
    cache: Cache,
    dtype: torch.dtype,
    detail: bool = False,
) -> dict[str, Any]:
    """Metrics over all pictures, over moving objects, and by scene.

    Under torchrun every rank calls this with clips of its own and gets the figures of them all.

    Args:
        refiner: in any mode; it is evaluated in evaluation mode.
        batches: the pictures, in any grouping; for `detail` in the order of filming.
        log_scale: from `fit_log_scale`.
        cache: tells the clip and scene of each picture.
        dtype: the number format that it computes in, as in training.
        detail: whether to add `Detail`'s figures.

    Returns:
        {"pseudo": metrics, "global_scale": metrics, "refined": metrics,
         "ratio": {metric: refined / pseudo}, "objects": {the same four},
         "scenes": {scene: {the same four}}, with detail "detail": {the same four}}
    """
    refiner.eval()
    mine = Sums(detail)
    for batch in batches:
        clips = [cache.clips[i] for i in cache.frames["clip"][batch.index.numpy()]]
        mine.add(predict_all(refiner, batch, log_scale, dtype), batch, clips)
    mine.forget_last()
    whole, *others = from_all(mine)
    for part in others:
        whole.merge(part)
    return whole.report()


class Sums:
    """What an evaluation adds up: metrics of each depth by group of pictures."""

    def __init__(self, detail: bool) -> None:
        self.detail = detail
        self.groups: dict[str, dict[str, DepthMetrics]] = {}
        self.details: dict[str, Detail] = {}

    def add(self, depths: Depths, batch: DeviceBatch, clips: Sequence[Clip]) -> None:
        """Add the depths of a batch's pictures, which are of these clips."""
        mask = counted(batch.depth_m, batch.zoe_m)
        moving = mask & (batch.objects > 0)
        scenes = np.array([clip.scene for clip in clips])
        for which, depth_m in depths.items():
            rows = picture_metrics(depth_m, batch.depth_m, mask)
            self.group("all", which).add(rows)
            for scene in np.unique(scenes):
                of_scene = torch.from_numpy(scenes == scene)
                self.group(f"scenes/{scene}", which).add(rows[of_scene])
            on_objects = picture_metrics(depth_m, batch.depth_m, moving)
            self.group("objects", which).add(on_objects)
            if self.detail:
                self.details.setdefault(which, Detail()).add(
                    depth_m, batch, mask, on_objects, clips
                )

    def group(self, name: str, which: str) -> DepthMetrics:
        return self.groups.setdefault(name, {}).setdefault(which, DepthMetrics())

    def forget_last(self) -> None:
        """No picture follows: let go of what the next one would have been compared with."""
        for one in self.details.values():
            one.last = None

    def merge(self, other: "Sums") -> None:
        """Add what another has added up over other clips."""
        for name, group in other.groups.items():
            for which, metrics in group.items():
                self.group(name, which).merge(metrics)
        for which, detail in other.details.items():
            self.details.setdefault(which, Detail()).merge(detail)

    def report(self) -> dict[str, Any]:
        """The figures, as `evaluate` returns them."""
        computed = {
            name: with_ratio({which: metrics.compute() for which, metrics in group.items()})
            for name, group in self.groups.items()
        }
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
        return report


def with_ratio(depths: dict[str, Any]) -> dict[str, Any]:
    """The figures of several depths, and what share of the pseudo depth's the refined one's are."""
    return depths | {"ratio": shares(depths.get("refined", {}), depths.get("pseudo", {}))}


def predict_all(
    refiner: nn.Module, batch: DeviceBatch, log_scale: float, dtype: torch.dtype
) -> Depths:
    """The three depths that are compared, float32 [B, 1, H, W] metres each."""
    with torch.autocast(batch.zoe_m.device.type, dtype, enabled=dtype != torch.float32):
        refined = refiner(batch.rgb01, batch.zoe_m)
    return {
        "pseudo": batch.zoe_m,
        "global_scale": batch.zoe_m * float(np.exp(log_scale)),
        "refined": refined,
    }


@torch.no_grad()
def evaluate_shuffled(
    refiner: nn.Module,
    batches: Iterable[DeviceBatch],
    others: Iterable[DeviceBatch],
    dtype: torch.dtype,
) -> dict[str, float]:
    """The refiner's metrics when each picture gets a pseudo depth from `others`.

    A refiner that told depth from the picture alone would not mind; one that uses the depth
    it is given must fail. Frames of one clip are too alike for this: `others` are other scenes.
    """
    refiner.eval()
    metrics = DepthMetrics()
    for batch, other in zip(batches, others, strict=False):
        repeats = -(-len(batch.zoe_m) // len(other.zoe_m))
        zoe_m = other.zoe_m.repeat(repeats, 1, 1, 1)[: len(batch.zoe_m)]
        with torch.autocast(zoe_m.device.type, dtype, enabled=dtype != torch.float32):
            refined = refiner(batch.rgb01, zoe_m)
        metrics.add(picture_metrics(refined, batch.depth_m, counted(batch.depth_m, zoe_m)))
    return metrics.compute()
