"""The refiner: predicted metric depth, bounded around the pseudo depth, with any backbone.

    depth_m = zoe_m exp(clip(change, -max_log, max_log))

The backbone sees RGB, log zoe_m and rows. It predicts either log depth, then change =
log typical_depth_m + backbone - log zoe_m, or the change itself (`predicts`). To predict a change,
it must first undo the errors of the pseudo depth's scale and details; to predict depth, it takes
from the pseudo depth what is right, which is better where training has seen the room
(benchmarks/quality.py). In rooms never seen it is worse (benchmarks/rooms.py). Depth differs from
the pseudo depth by at most a factor exp(max_log). An untrained refiner returns its input
unchanged, bit for bit, in evaluation mode.

After training, a calibration on rooms that training has not seen sets how far depth follows this
change (zoerefine/depth/training/calibration.py). With c the bounded change of log depth,

    depth_m = zoe_m exp(log_factor + strength shrink (c - log_factor))
    shrink = min(1, limit / size)^2,  size = the frame's mean |c - log_factor|

so depth falls back to the single factor exp(log_factor) where the refiner is no help, and in
frames where it corrects more than it did in those rooms. The defaults (0, 1 and an infinite limit)
change no bit.

With confidence, the backbone has a second output: the scale of a Laplace distribution of the error
of log depth. It sees the features of depth and does not change them, so depth is trained exactly
as without it.

A refiner that takes metric points gets pseudo depth that the points have corrected, and inputs
that say where points are and what they say (depth/points/spread.py). So it takes any number of
points, and a network of fixed inputs is all that an engine has to run. Frames
with points have a calibration of their own, without a single factor: the points have corrected it.

The row of a pixel is an input (as in CoordConv, Liu et al. 2018): a camera at a constant height
sees the floor of a row at a constant distance, which gives the scale.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoerefine.base.depth_limits import TYPICAL_M
from zoerefine.depth.points import CHANGE_UNITS, NO_CHANGE, RGB
from zoerefine.depth.points.spread import no_hints

# ImageNet statistics for RGB in 0..1, indoor statistics for log depth, those of rows in -1..1.
# The mean of log depth is log typical_depth_m.
INPUT_MEAN = (0.485, 0.456, 0.406, math.log(TYPICAL_M), 0.0)
LOG_DEPTH = 3  # the channel of log depth
INPUT_STD = (0.229, 0.224, 0.225, 0.6, 0.58)
INPUTS = len(INPUT_MEAN)
# Of what metric points say at a pixel: see `hints_of` in zoerefine/depth/points/spread.py.
HINT_MEAN = (0.0, NO_CHANGE / 255, 0.0, NO_CHANGE / 255)
HINT_STD = (0.25, 0.25 * CHANGE_UNITS[0] / 255, 0.25, 0.2 * CHANGE_UNITS[1] / 255)
NEAREST_INPUT_M = 0.05  # the backbone sees nearer depths, and 0 (no measurement), as this depth
SMALLEST_DEPTH_M = 1e-3  # smaller than the step of any depth file
MEAN_LOG_SCALE = math.log(0.1)  # of the error of log depth; it is predicted within a factor e^5
MAX_LOG_SCALE = 5.0
BAND_SCALES = math.log(10)  # half-width of the 90% band of a Laplace distribution of scale 1
DEPTH, CORRECTION = "depth", "correction"  # what a backbone predicts
# Buffers that the calibration sets, with their values before it.
CALIBRATION = {"log_factor": 0.0, "strength": 1.0, "limit": math.inf, "spread_factor": 1.0}
# The same for frames with metric points.
POINT_CALIBRATION = {"point_strength": 1.0, "point_limit": math.inf}
CALIBRATED = (*CALIBRATION, *POINT_CALIBRATION)  # names of the buffers


class RefinerNetwork(nn.Module):
    """Corrects metric depth by at most a factor exp(+-max_log) at a pixel, before calibration.

    `backbone` is a `depth.model.backbone.Backbone`: it maps [B, INPUTS, H', W'], with H' and
    W' divisible by `backbone.stride`, to log (depth / typical_depth_m), [B, 1, H', W'], or, if
    `predicts` is CORRECTION, to the change of log depth; with confidence, to a second tensor of
    this shape, too.

    Attributes:
        has_confidence: whether `refine` gives the spread of depth.
        takes_points: whether pictures may have `hints01` as channels after RGB.
        log_factor, strength, limit, spread_factor: the calibration, float32 scalars.
    """

    mean: Tensor
    std: Tensor
    trained: Tensor
    rows: Tensor | None
    size: tuple[int, int] | None
    log_factor: Tensor
    strength: Tensor
    limit: Tensor
    spread_factor: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        max_log: float,
        predicts: str = DEPTH,
        typical_depth_m: float = TYPICAL_M,
        takes_points: bool = False,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.max_log = max_log
        self.predicts = predicts
        self.mean_log_depth = math.log(typical_depth_m)
        self.has_confidence = bool(getattr(backbone, "confidence", False))
        self.stride = int(backbone.stride)  # type: ignore[arg-type]
        self.takes_points = takes_points
        hint_mean, hint_std = (HINT_MEAN, HINT_STD) if takes_points else ((), ())
        mean, std = torch.tensor(INPUT_MEAN + hint_mean), torch.tensor(INPUT_STD + hint_std)
        mean[LOG_DEPTH] = self.mean_log_depth
        self.register_buffer("mean", mean.view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", std.view(1, -1, 1, 1), persistent=False)
        self.register_buffer("trained", torch.tensor(False))
        self.register_buffer("rows", None, persistent=False)
        self.size = None
        for name, value in self.uncalibrated.items():
            self.register_buffer(name, torch.tensor(value))

    @property
    def uncalibrated(self) -> dict[str, float]:
        """The buffers of the calibration, with their values before it."""
        return CALIBRATION | (POINT_CALIBRATION if self.takes_points else {})

    def fix_size(self, height: int, width: int) -> None:
        """Take pictures of this size only, so that a trace names no device and no branch.

        A traced `arange` keeps the device that it was traced on; a buffer moves with its module.
        """
        rows = row_positions(height, self.mean.device)
        self.register_buffer("rows", rows, persistent=False)
        self.size = height, width

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> Tensor:
        """Refine a batch.

        Args:
            rgb01: float [B, 3, H, W] in 0..1; of a refiner that takes points also
                [B, RGB + HINTS, H, W],
                with `hints01`.
            zoe_m: float32 [B, 1, H, W], metres; 0 means no measurement and stays 0. With points,
                corrected by them.

        Returns:
            float32 [B, 1, H, W], metres. Any H and W.
        """
        return self.depth_of(zoe_m, self.predict(rgb01, zoe_m)[0], rgb01)

    def refine(self, rgb01: Tensor, zoe_m: Tensor) -> tuple[Tensor, Tensor]:
        """Depth and its spread, only where `has_confidence`.

        The truth lies within depth_m exp(+-spread) at 90% of the pixels.

        Args:
            rgb01: as for `forward`.
            zoe_m: as for `forward`.

        Returns:
            Depth as from `forward`, and half the width of the 90% band in log depth, float32
            [B, 1, H, W], at least 0; it is 0 where the pseudo depth is 0.
        """
        change, *log_scales = self.predict(rgb01, zoe_m)
        log_scale = MEAN_LOG_SCALE + log_scales[0].clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)
        spread = log_scale.exp() * (BAND_SCALES * self.spread_factor)
        return self.depth_of(zoe_m, change, rgb01), torch.where(zoe_m > 0, spread, 0.0)

    def predict(self, rgb01: Tensor, zoe_m: Tensor) -> tuple[Tensor, ...]:
        """What the backbone predicts: one or, with confidence, two float32 [B, 1, H, W].

        The first is the change of log depth, without a bound. The second is the log of the scale
        of its error, less MEAN_LOG_SCALE, without a bound.
        """
        height, width = self.size or zoe_m.shape[-2:]
        log_zoe = zoe_m.clamp(min=SMALLEST_DEPTH_M).log()
        log_input = log_zoe.clamp(min=math.log(NEAREST_INPUT_M))
        rows = row_positions(height, zoe_m.device) if self.rows is None else self.rows
        rows = rows.expand_as(zoe_m)
        inputs = torch.cat([rgb01[:, :RGB], log_input, rows], 1)  # [B, INPUTS, H, W]
        if self.takes_points:
            hints01 = rgb01[:, RGB:]
            inputs = torch.cat([inputs, no_hints(zoe_m) if self.lacks_hints(rgb01) else hints01], 1)
        inputs = (inputs - self.mean) / self.std
        bottom, right = -height % self.stride, -width % self.stride
        if bottom or right:
            # Replicate, not reflect: it also works for pictures smaller than the padding.
            inputs = F.pad(inputs, (0, right, 0, bottom), mode="replicate")
        found = self.backbone(inputs)
        outputs = [one.float() for one in (found if self.has_confidence else (found,))]
        if bottom or right:
            outputs = [one[..., :height, :width] for one in outputs]
        if self.predicts == DEPTH:
            outputs[0] = outputs[0] + self.mean_log_depth - log_zoe
        return tuple(outputs)

    def lacks_hints(self, rgb01: Tensor) -> bool:
        """Whether pictures are RGB alone. A trace has no branch and is of pictures with hints."""
        return self.size is None and rgb01.shape[1] == RGB

    def has_points(self, rgb01: Tensor) -> Tensor:
        """Which frames have metric points, bool [B, 1, 1, 1]."""
        if self.lacks_hints(rgb01):
            return torch.zeros(len(rgb01), 1, 1, 1, dtype=torch.bool, device=rgb01.device)
        return rgb01[:, RGB : RGB + 1].amax((1, 2, 3), keepdim=True) > 0

    def depth_of(self, zoe_m: Tensor, change: Tensor, rgb01: Tensor) -> Tensor:
        """Refined depth [B, 1, H, W], metres, from the predicted change of log depth."""
        # Clamped before the exponential, which would overflow in a training that diverges.
        if self.training:
            self.trained.fill_(True)
            return zoe_m * ClampKeepingGradient.apply(change, self.max_log).exp()
        change = self.calibrated(zoe_m, change.clamp(-self.max_log, self.max_log), rgb01)
        return torch.where(self.trained, zoe_m * change.exp(), zoe_m)

    def calibrated(self, zoe_m: Tensor, change: Tensor, rgb01: Tensor) -> Tensor:
        """The bounded change of log depth after calibration, both [B, 1, H, W]."""
        log_factor, strength, limit = self.log_factor, self.strength, self.limit
        if self.takes_points:
            known = self.has_points(rgb01)
            log_factor = torch.where(known, 0.0, log_factor)
            strength = torch.where(known, self.get_buffer("point_strength"), strength)
            limit = torch.where(known, self.get_buffer("point_limit"), limit)
        correction = change - log_factor
        size = correction_size(zoe_m, correction)
        return log_factor + strength * shrink(size, limit) * correction


def correction_size(zoe_m: Tensor, correction: Tensor) -> Tensor:
    """The mean |correction| over each frame's pixels with a pseudo depth, [B, 1, 1, 1]."""
    measured = (zoe_m > 0).float()
    total = (correction.abs() * measured).sum((1, 2, 3), keepdim=True)
    return total / measured.sum((1, 2, 3), keepdim=True).clamp(min=1.0)


def shrink(size: Tensor, limit: Tensor) -> Tensor:
    """The factor on the correction of a frame of this size: 1 up to the limit, then towards 0."""
    # Not min(1, limit / size): with an infinite limit its gradient is NaN.
    return (size / limit).clamp(min=1.0).square().reciprocal()


class TrainedOutputs(nn.Module):
    """A refiner in training, with confidence: RGB and pseudo depth to depth and the error's scale.

    A module of its own, since DistributedDataParallel and torch.compile wrap a module's `forward`.
    """

    def __init__(self, refiner: RefinerNetwork) -> None:
        super().__init__()
        self.refiner = refiner

    def forward(self, rgb01: Tensor, zoe_m: Tensor) -> tuple[Tensor, Tensor]:
        """Depth in metres, and the log of the scale of the error of its log; both [B, 1, H, W]."""
        change, log_scale = self.refiner.predict(rgb01, zoe_m)
        log_scale = MEAN_LOG_SCALE + ClampKeepingGradient.apply(log_scale, MAX_LOG_SCALE)
        return self.refiner.depth_of(zoe_m, change, rgb01), log_scale


class ClampKeepingGradient(torch.autograd.Function):
    """Clamps to [-bound, bound], and keeps the gradients that lead back inside.

    Outside its bounds a plain clamp has gradient 0, so a pixel predicted out there would stay
    there. Here only gradients that lead further out are set to 0.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, bound: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.bound = bound
        return values.clamp(-bound, bound)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (values,) = ctx.saved_tensors
        # An optimiser's step goes against the gradient.
        outward = ((values > ctx.bound) & (gradient < 0)) | ((values < -ctx.bound) & (gradient > 0))
        return gradient.masked_fill(outward, 0.0), None


def row_positions(height: int, device: torch.device) -> Tensor:
    """Vertical position of each row, [H, 1]: -1 at the upper edge, 1 at the lower."""
    centres = torch.arange(height, device=device, dtype=torch.float32) + 0.5
    return (centres * (2 / height) - 1)[:, None]


class DepthHead(nn.Conv2d):
    """Features [B, channels, H, W] to log (depth / typical depth), float32 [B, 1, H, W].

    Computes in float32 (TF32 on a GPU) under autocast, too: bfloat16 has steps of 0.8%. Initial
    weights are small, so that the first predictions are plausible depths.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 1, 1)
        nn.init.normal_(self.weight, std=0.05)
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        # Without autocast, no context either: an export would record it.
        if not torch.is_autocast_enabled(features.device.type):
            return super().forward(features.float())
        with torch.autocast(features.device.type, enabled=False):
            return super().forward(features.float())


class ScaleHead(DepthHead):
    """Features to the log of the scale of the error of log depth, less MEAN_LOG_SCALE.

    It learns from the features as they are: no gradient of it reaches them. It draws no random
    numbers, so that the other weights start as they do without it.
    """

    def __init__(self, channels: int) -> None:
        with torch.random.fork_rng(devices=[]):
            super().__init__(channels)
        nn.init.zeros_(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features.detach() if self.training else features)
