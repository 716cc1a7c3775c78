"""The depths that are compared: each a function of a batch. Two of them need the truth."""

import copy
import math

import torch
from common.rooms.figures import Predicted, Side, frames_in_order
from torch import Tensor, nn

from zoerefine.depth.data.cache.cache import Cache
from zoerefine.depth.data.loading.prefetch import DeviceBatch
from zoerefine.depth.metrics import valid_pixels
from zoerefine.depth.model import RefinerNetwork
from zoerefine.depth.training.calibration import fit_log_scale

PSEUDO, FACTOR, RIDGE = "pseudo depth", "single factor", "scale and shift"
FIRST, REFINED = "first implementation", "refined"
UNCALIBRATED = "refined, full strength"
OTHER = "refined, another's pseudo depth"
BEST_OF_ROOM, BEST_OF_FRAME = "best factor of each room", "best factor of each frame"
NAMES = (PSEUDO, FACTOR, RIDGE, FIRST, REFINED, UNCALIBRATED, OTHER, BEST_OF_ROOM, BEST_OF_FRAME)


def pseudo(batch: DeviceBatch) -> Predicted:
    """The pseudo depth as it is."""
    return Predicted(batch.zoe_m)


def times(log_factor: float) -> Side:
    """The pseudo depth times a factor."""
    return lambda batch: Predicted(batch.zoe_m * math.exp(log_factor))


def depth_of(network: nn.Module) -> Side:
    """The depth of a network that predicts no band."""
    network.eval()
    return lambda batch: Predicted(network(batch.rgb01, batch.zoe_m))


def refined(refiner: RefinerNetwork) -> Side:
    """The refined depth and its band."""
    refiner.eval()
    return lambda batch: Predicted(*refiner.refine(batch.rgb01, batch.zoe_m))


def without_calibration(refiner: RefinerNetwork) -> Side:
    """The refined depth with the correction at full strength, however large it is."""
    return depth_of(full_strength(refiner))


def full_strength(refiner: RefinerNetwork) -> RefinerNetwork:
    """A refiner without its calibration."""
    full = copy.deepcopy(refiner)
    for name, value in (("log_factor", 0.0), ("strength", 1.0), ("limit", math.inf)):
        full.get_buffer(name).fill_(value)
    return full


def from_other(refiner: RefinerNetwork, others_m: Tensor) -> Side:
    """The refined depth of each picture when it gets one of some other pseudo depths."""
    refiner.eval()

    def side(batch: DeviceBatch) -> Predicted:
        chosen = others_m[batch.index % len(others_m)]
        return Predicted(refiner(batch.rgb01, chosen))

    return side


def pseudo_depths(cache: Cache, scenes: tuple[str, ...]) -> Tensor:
    """The pseudo depth of the middle frame of each scene, float32 [scenes, 1, H, W]."""
    found: dict[str, list[Tensor]] = {}
    for batch in frames_in_order(cache, scenes):
        for zoe_m, clip in zip(batch.zoe_m, cache.frames["clip"][batch.index.numpy()], strict=True):
            found.setdefault(cache.clips[clip].scene, []).append(zoe_m)
    return torch.stack([frames[len(frames) // 2] for frames in found.values()])


def best_of_each_room(cache: Cache, scenes: tuple[str, ...]) -> Side:
    """The pseudo depth times the factor of least AbsRel over the room's own frames."""
    factors = {scene: fit_log_scale(frames_in_order(cache, (scene,))) for scene in scenes}

    def side(batch: DeviceBatch) -> Predicted:
        clips = cache.frames["clip"][batch.index.numpy()]
        logs = torch.tensor([factors[cache.clips[clip].scene] for clip in clips])
        return Predicted(batch.zoe_m * logs.exp().to(batch.zoe_m.device)[:, None, None, None])

    return side


def best_of_each_frame(batch: DeviceBatch) -> Predicted:
    """The pseudo depth times the factor of least AbsRel over the frame itself."""
    mask = valid_pixels(batch.depth_m, batch.zoe_m)
    depths = [
        zoe_m * best_factor(truth_m[valid], zoe_m[valid])
        for truth_m, zoe_m, valid in zip(batch.depth_m, batch.zoe_m, mask, strict=True)
    ]
    return Predicted(torch.stack(depths))


def best_factor(truth_m: Tensor, zoe_m: Tensor) -> float:
    """The factor of least AbsRel of pixels: the median of truth / zoe with weights zoe / truth."""
    if not len(truth_m):
        return 1.0
    ratio, order = (truth_m / zoe_m).double().sort()
    weight = (zoe_m / truth_m).double()[order].cumsum(0)
    return float(ratio[torch.searchsorted(weight, weight[-1] / 2)])
