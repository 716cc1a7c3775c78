"""Asks, or refuses, where depth seems to be in another unit than metres.

Points and measurements are compared with the predicted depth at their pixels, true depth with the
pseudo depth of its picture. What is in doubt is a question; the caller shows it.
Importing this file does not import torch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.messages import warn
from zoerefine.depth.data.dataset import evenly_spaced
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.metric_points import MetricPoints, read_points, refuse_shares

# Times the predicted depth.
TOO_MUCH = 20.0  # all measurements are in another unit
AS_IN_FEET = 2.0  # 1.7 are in one room of twenty, and feet are 3.3
# Zones in metres * 256, read as millimetres, are 0.26 times as far. In the median 0.44 was the
# nearest of 62 rooms.
AS_IN_256THS = 1 / 3
# Millimetres read as metres * 256 are 3.9 times as far. Networks predict near things so far, too,
# but in no room that was measured half of a frame beyond 5 m.
AS_IN_MILLIMETRES = 0.4
FAR_M = 5.0  # predicted, in the median

# Pseudo depth, times the true depth. Few metric networks are as wrong in the median (2.3 in 62
# rooms), and 1/256 m read as millimetres is 3.9 times as far, 1/5000 m a fifth.
OTHER_UNIT = 3.0

FARTHEST_ZOE_M = 256.0  # pseudo depth has 16 bits of 1/256 m

# Pseudo depth in millimetres, in 62 rooms: half of a frame is beyond this depth of other rooms in
# 95 of 100 pairs, and in 3 where it is in metres * 256.
NEARLY_ALL = 0.999

UNITS = {"centimetres": 100.0, "millimetres": 1000.0}
FEET = {"feet": 3.28}
ASKED_SHARE = 0.3  # of all measurements that are so far: some of them may be in feet
ASKED_FRAMES = 16  # of a folder or of a program's calls, by which their unit is asked about
LEAST_POINTS = 3  # one or two may be of what is behind a window

Array = np.ndarray


def question_of_unit(
    where: str,
    errors: Sequence[float],
    what: str,
    predicted_m: Sequence[float],
    may_be_zones: bool = True,
) -> str:
    """What is in doubt about the unit of what was measured or predicted; empty where nothing is.

    Args:
        errors: the log of measured over predicted depth, one for each of `what`.
        predicted_m: predicted depths of them.
        may_be_zones: whether metric points may be of a PNG of zones.

    Raises `UserError` where they are as a whole far from what networks predict.
    """
    if not errors:
        return ""
    ratios = np.exp(errors)
    ratio = float(np.median(ratios))
    refuse_ratio(where, ratio)
    if ratio < AS_IN_MILLIMETRES and np.median(predicted_m) > FAR_M:
        return (
            f"{where}: depth is predicted {1 / ratio:.1f} times as far as measured: if it is in "
            "millimetres, give metres * 256"
        )
    asked = np.quantile(ratios, 1 - ASKED_SHARE)
    if asked >= AS_IN_FEET:
        such = ratios[ratios >= AS_IN_FEET]
        remedy = f"they are in {unit_of(float(np.median(such)))}, write metres"
    elif may_be_zones and asked <= AS_IN_256THS:
        such = ratios[ratios <= AS_IN_256THS]
        remedy = "zones are in metres * 256, write millimetres"
    else:
        return ""
    return (
        f"{where}: {len(such)} of {len(ratios)} {what} are about {np.median(such):.2f} times what "
        f"is predicted: if {remedy}"
    )


def refuse_ratio(where: str, ratio: float) -> None:
    """Raises `UserError` where measured over predicted depth shows that one has another unit."""
    if ratio < 1 / TOO_MUCH:
        raise UserError(
            f"{where}: depth is predicted {1 / ratio:.0f} times as far as measured: it is in "
            "another unit; give metres"
        )
    if ratio > TOO_MUCH:
        raise UserError(
            f"{where}: what was measured is {ratio:.0f} times what is predicted: it seems to be in "
            f"{unit_of(ratio)}; write metres"
        )


def unit_of(ratio: float) -> str:
    """The unit in which depth is about so many times what it is in metres."""
    units = FEET | UNITS
    return min(units, key=lambda name: abs(math.log(ratio / units[name])))


def ratio_of(zoe_m: Array, depth_m: Array) -> float:
    """The median of pseudo to true depth [H, W], both metres, where there are both; else NaN."""
    both = (depth_m > 0) & (zoe_m > 0)
    return float(np.median(zoe_m[both] / depth_m[both])) if both.any() else math.nan


def is_beyond_range(depth: Any) -> bool:
    """Whether nine in ten valid pixels, of an array or a tensor, are beyond `FARTHEST_ZOE_M`.

    A picture of a wide sky has fewer.
    """
    finite = depth < math.inf
    far = (depth > FARTHEST_ZOE_M) & finite
    return bool(far.any()) and 10 * int(far.sum()) > 9 * int(((depth > 0) & finite).sum())


def question_of_truth(ratios: Iterable[float]) -> str:
    """What is in doubt about the units, by the `ratio_of` of frames; empty where nothing is."""
    known = [one for one in ratios if not math.isnan(one)]
    ratio = np.median(known) if known else 1.0
    if 1 / OTHER_UNIT < ratio < OTHER_UNIT:
        return ""
    return (
        f"pseudo depth is {ratio:.2g} times the true depth: is one of them in another unit? Every "
        "metric would be wrong"
    )


def ask_unit(where: str, files: Sequence[tuple[Path, Path]]) -> None:
    """Warn where points seem to be in another unit, by some of their pictures.

    Args:
        files: the points and the pseudo depth of each picture. What cannot be read is left out.

    Raises `UserError` as `question_of_unit`.
    """
    from zoerefine.depth.data.cache.decode import read_zoe  # engines need no OpenCV

    errors, predicted_m, sigmas = [], [], []
    for path, zoe in evenly_spaced(files, ASKED_FRAMES):
        with suppress(UserError):  # who needs this picture says why
            zoe_u16 = read_zoe(zoe)
            points = read_points(path, *zoe_u16.shape)
            error = points_error(points, zoe_u16)
            if error is not None:
                errors.append(error)
                predicted_m.append(median_m(zoe_u16))
                sigmas.append(sigma_share(points))
    ask(where, errors, "frames", predicted_m, sigmas)


def ask(
    where: str,
    errors: Sequence[float],
    what: str,
    predicted_m: Sequence[float],
    sigmas: Sequence[float],
) -> None:
    """Warn of what is in doubt about points. Raises `UserError` as `question_of_unit`."""
    questions = (
        question_of_unit(where, errors, what, predicted_m),
        question_of_sigma(where, sigmas),
    )
    for question in filter(None, questions):
        warn(question)


def far_of(zoe_u16: Array) -> float:
    """The depth that hardly a pixel of some frames is beyond, metres; any valid pixel may be."""
    valid = zoe_u16[zoe_u16 > 0]
    return float(np.quantile(valid, NEARLY_ALL) * ZOE_UNIT_M) if len(valid) else FARTHEST_ZOE_M


def trained_far_m(manifest: Mapping[str, Any]) -> float:
    """The farthest depth of a refiner's training, by its bundle's manifest."""
    return float(min(manifest.get(name, FARTHEST_ZOE_M) for name in ("farthest_m", "pseudo_far_m")))


def question_of_far(what: str, medians_m: Sequence[float], far_m: float) -> str:
    """What is in doubt about pseudo depth for a refiner, by the `median_m` of some frames."""
    if not medians_m or (median := float(np.median(medians_m))) <= far_m:
        return ""
    return (
        f"{what} is mostly beyond the {far_m:.3g} m of the refiner's training (median "
        f"{median:.1f} m): if it is in millimetres, write metres * 256"
    )


def sigma_share(points: MetricPoints) -> float:
    """The median of stated sigma over measured depth; NaN where no point states one."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a program may give what is no depth
        shares = points.sigma_m / points.depth_m
    known = shares[np.isfinite(shares)]
    return float(np.median(known)) if len(known) else math.nan


def question_of_sigma(where: str, shares: Iterable[float]) -> str:
    """What is in doubt about sigma, by the `sigma_share` of pictures; empty where nothing is."""
    known = [one for one in shares if not math.isnan(one)]
    if not known or (share := float(np.median(known))) <= 1:
        return ""
    return (
        f"{where}: sigma is {share:.2g} times what was measured, so the points hardly count: if it "
        "is in millimetres, write metres"
    )


def median_m(zoe_u16: Array) -> float:
    """The median depth of the valid pixels of a picture, metres; there is one."""
    return float(np.median(zoe_u16[zoe_u16 > 0]) * ZOE_UNIT_M)


def points_error(points: MetricPoints, zoe_u16: Array) -> float | None:
    """The log of points over pseudo depth [H, W] of their picture, metres * 256: their median.

    None where too few of them are usable. Points in millimetres are too far to be usable, so where
    few are, all count.
    """
    height, width = zoe_u16.shape
    found = points.usable(height, width)
    points = found if len(found) >= LEAST_POINTS else points.usable(height, width, math.inf)
    predicted_m = zoe_u16[points.pixels(height, width)] * ZOE_UNIT_M
    ratios = points.depth_m[predicted_m > 0] / predicted_m[predicted_m > 0]
    return float(np.log(np.median(ratios))) if len(ratios) >= LEAST_POINTS else None


def refuse_points_in_other_unit(where: str, points: MetricPoints, zoe_u16: Array) -> float | None:
    """`points_error`. Raises `UserError` where it must be that of another unit than metres, and for
    places that are no pixels."""
    height, width = zoe_u16.shape
    used = points.usable(height, width, math.inf)
    refuse_shares(used.x, used.y, where)
    error = points_error(points, zoe_u16)
    if error is not None:
        refuse_ratio(where, math.exp(error))
    return error


class DepthOfCalls:
    """The pseudo depth of a program's calls: asked about once."""

    def __init__(self, far_m: float) -> None:
        self.far_m = far_m
        self.medians_m: list[float] = []
        self.lock = Lock()  # calls may come from several threads

    def check(self, zoe_u16: Array) -> None:
        """Warn at the ASKED_FRAMES-th picture of depth [B, H, W] that may be in another unit."""
        if len(self.medians_m) >= ASKED_FRAMES:
            return
        medians_m = [median_m(one) for one in zoe_u16 if one.any()]
        with self.lock:
            is_last = 0 < ASKED_FRAMES - len(self.medians_m) <= len(medians_m)
            self.medians_m += medians_m
        if is_last and (question := question_of_far("pseudo depth", self.medians_m, self.far_m)):
            warn(question)


class PointsOfCalls:
    """The points of a program's calls, one picture each: refused at once, asked about once."""

    def __init__(self) -> None:
        self.errors: list[float] = []
        self.predicted_m: list[float] = []
        self.sigmas: list[float] = []
        self.lock = Lock()  # calls may come from several threads

    def check(self, points: MetricPoints, zoe_u16: Array) -> None:
        """Warn at the ASKED_FRAMES-th picture. Raises as `refuse_points_in_other_unit`."""
        error = refuse_points_in_other_unit("metric points", points, zoe_u16)
        with self.lock:
            if error is None or len(self.errors) == ASKED_FRAMES:
                return
            self.errors.append(error)
            self.predicted_m.append(median_m(zoe_u16))
            self.sigmas.append(sigma_share(points))
            if len(self.errors) < ASKED_FRAMES:
                return
        ask("metric points", self.errors, "pictures", self.predicted_m, self.sigmas)
