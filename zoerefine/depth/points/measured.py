"""From distances that were measured once to a room's calibration, and to what is wrong with them.

Importing this file does not import torch.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.messages import one_line, warn
from zoerefine.depth.data.dataset import evenly_spaced
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.data.metric_points import (
    MetricPoints,
    read_points,
    refuse_outside,
    refuse_shares,
)
from zoerefine.depth.points.measured_file import Measured
from zoerefine.depth.points.room import (
    Measurement,
    RoomCalibration,
    calibrate,
    ends_of,
    unseen_errors,
)
from zoerefine.depth.points.room_prior import CENTRE_M, NAMES, RoomPrior, features

TOO_MUCH = 20.0  # times the predicted depth: all measurements are in another unit
LEAST_POINTS = 3  # one or two may be of what is behind a window
DOUBTFUL = 0.35  # of the weight of a measurement that agrees
AS_IN_FEET = 2.0  # times the usual depth; 1.7 are in one room of twenty, and feet are 3.3
FEET = 3.28
# Millimetres read as metres * 256 are 3.9 times as far. Networks predict near things so far, too,
# but in no room that was measured half of a frame beyond 5 m.
AS_IN_MILLIMETRES = 0.4  # times the usual depth
FAR_M = 5.0  # predicted, in the median
# Zones in metres * 256, read as millimetres, are 0.26 times as far. In the median 0.44 was the
# nearest of 62 rooms.
AS_IN_256THS = 1 / 3  # times the predicted depth
ASKED_SHARE = 0.3  # of all measurements that are so far: some of them may be in feet
ASKED_FRAMES = 16  # of a folder or of a program's calls, by which their points are asked about
LEAST_APART = 0.25  # of their depth: pixels nearer to each other may be on both sides of an edge
UNITS = {"centimetres": 100.0, "millimetres": 1000.0}
ALIKE = 1.5  # a factor between depths that agree

Array = np.ndarray


@dataclass(frozen=True)
class RoomFound:
    """A room's calibration, and what it comes from.

    Attributes:
        calibration: of the room.
        used: the measurements at predicted depth.
        in_doubt: what is in doubt, by the number of the measurement.
        errors: of log depth at each measurement when the other frames predict it, [N].
    """

    calibration: RoomCalibration
    used: list[Measurement]
    in_doubt: dict[int, str]
    errors: Array


def room_of(
    lines: Sequence[Measured],
    frames: Mapping[str, Array],
    intrinsics: Intrinsics | None = None,
    prior: RoomPrior | None = None,
) -> "RoomFound":
    """The calibration of a room.

    Args:
        frames: predicted depth of the frames that were measured, float [H, W] metres.
        intrinsics: of the camera, which distances between two pixels need.
        prior: of another set of rooms than the shipped one.

    Raises:
        UserError: a measurement is outside its picture or at an invalid pixel, its frame is
            missing, a distance has no intrinsics, or all are in another unit.
    """
    prior = prior or RoomPrior.shipped()
    used = [measurement(line, frames, intrinsics) for line in lines]
    question = question_of_unit(
        lines[0].where.partition(" line ")[0] if lines else "",
        [error for one in used if (error := unit_error(one, prior.mean)) is not None],
        "measurements",
        [predicted_depth_m(one.features) for one in used],
    )
    room = calibrate(prior, used)
    in_doubt = {
        number: doubt(line, one, frames[line.frame], room)
        for number, (line, one) in enumerate(zip(lines, used, strict=True))
        if room.weights[number] < DOUBTFUL
    }
    if question:
        in_doubt[0] = question
    return RoomFound(room, used, in_doubt, unseen_errors(prior, used, room))


def measurement(
    line: Measured, frames: Mapping[str, Array], intrinsics: Intrinsics | None
) -> Measurement:
    """A line with what is predicted at its pixels. Raises as `room_of`."""
    if line.frame not in frames:
        hint = ": frames of a video are 000000, 000001, ..." if line.frame.isdecimal() else ""
        raise UserError(f"{line.where}: there is no frame {one_line(line.frame)!r}{hint}")
    depth_m = frames[line.frame]
    first, *more = (features_at(depth_m, x, y, line.where) for x, y in line.pixels)
    if not (more or line.along_ray):
        return Measurement(line.frame, first, line.metres)
    if intrinsics is None:
        what = "a distance between two pixels" if more else "a distance along the ray"
        raise UserError(
            f"{line.where}: {what} needs the camera's intrinsics: give them "
            "(--intrinsics FX FY CX CY)"
        )
    intrinsics = intrinsics.of_size(*depth_m.shape)
    x, y = np.array(line.pixels).T
    rays = np.stack([
        (x - intrinsics.cx) / intrinsics.fx, (y - intrinsics.cy) / intrinsics.fy, np.ones(len(x))
    ], 1)  # fmt: skip
    if more:
        return Measurement(line.frame, first, line.metres, more[0], rays)
    return Measurement(line.frame, first, line.metres / float(np.linalg.norm(rays[0])))


def features_at(depth_m: Array, x: float, y: float, where: str) -> Array:
    """The features of a pixel. Raises `UserError` outside the picture and at an invalid pixel."""
    height, width = depth_m.shape
    refuse_outside(x, y, height, width, where)
    predicted_m = depth_m[round(y), round(x)]
    if not (np.isfinite(predicted_m) and predicted_m > 0):
        raise UserError(
            f"{where}: no depth is predicted at x {x:g}, y {y:g}: measure another pixel"
        )
    return features(predicted_m, np.array((x + 0.5) / width), np.array((y + 0.5) / height))


def question_of_unit(
    where: str, errors: Sequence[float], what: str, predicted_m: Sequence[float]
) -> str:
    """What is in doubt about the unit of what was measured or predicted; empty where nothing is.

    Args:
        errors: the log of measured over predicted depth, one for each of `what`.
        predicted_m: predicted depths of them.

    Raises `UserError` where they are as a whole far from what networks predict.
    """
    if not errors:
        return ""
    ratio = math.exp(np.median(errors))
    refuse_ratio(where, ratio)
    if ratio < AS_IN_MILLIMETRES and np.median(predicted_m) > FAR_M:
        return (
            f"{where}: depth is predicted {1 / ratio:.1f} times as far as measured: if it is in "
            "millimetres, give metres * 256"
        )
    if math.exp(np.quantile(errors, 1 - ASKED_SHARE)) < AS_IN_FEET:
        return ""
    far = [error for error in errors if error > math.log(AS_IN_FEET)]
    ratio = math.exp(np.median(far))
    return (
        f"{where}: {len(far)} of {len(errors)} {what} are about {ratio:.1f} times what is "
        f"predicted: if they are in {unit_of(ratio)}, write metres"
    )


def question_of_points(
    where: str, errors: Sequence[float], what: str, predicted_m: Sequence[float]
) -> str:
    """`question_of_unit` for metric points, which may be in metres * 256, too."""
    question = question_of_unit(where, errors, what, predicted_m)
    if question or not errors or math.exp(np.quantile(errors, 1 - ASKED_SHARE)) > AS_IN_256THS:
        return question
    near = [error for error in errors if error < math.log(AS_IN_256THS)]
    return (
        f"{where}: {len(near)} of {len(errors)} {what} are about {math.exp(np.median(near)):.2f} "
        "times what is predicted: if zones are in metres * 256, write millimetres"
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
    units = {"feet": FEET} | UNITS
    return min(units, key=lambda name: abs(math.log(ratio / units[name])))


def predicted_depth_m(values: Array) -> float:
    """The predicted depth of `features`."""
    return CENTRE_M * math.exp(values[NAMES.index("range")])


def ask_unit(where: str, files: Sequence[tuple[Path, Path]]) -> None:
    """Warn where points seem to be in another unit, by some of their pictures.

    Args:
        files: the points and the pseudo depth of each picture. What cannot be read is left out.

    Raises `UserError` as `question_of_unit`.
    """
    from zoerefine.depth.data.cache.decode import read_zoe  # engines need no OpenCV

    errors, predicted_m = [], []
    for points, zoe in evenly_spaced(files, ASKED_FRAMES):
        with suppress(UserError):  # who needs this picture says why
            zoe_u16 = read_zoe(zoe)
            error = points_error(read_points(points, *zoe_u16.shape), zoe_u16)
            if error is not None:
                errors.append(error)
                predicted_m.append(median_m(zoe_u16))
    if question := question_of_points(where, errors, "frames", predicted_m):
        warn(question)


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


class PointsOfCalls:
    """The points of a program's calls, one picture each: refused at once, asked about once."""

    def __init__(self) -> None:
        self.errors: list[float] = []
        self.predicted_m: list[float] = []
        self.lock = Lock()  # calls may come from several threads

    def check(self, points: MetricPoints, zoe_u16: Array) -> None:
        """Warn at the ASKED_FRAMES-th picture. Raises as `refuse_points_in_other_unit`."""
        error = refuse_points_in_other_unit("metric points", points, zoe_u16)
        with self.lock:
            if error is None or len(self.errors) == ASKED_FRAMES:
                return
            self.errors.append(error)
            self.predicted_m.append(median_m(zoe_u16))
            is_last = len(self.errors) == ASKED_FRAMES
        words = "metric points", self.errors, "pictures", self.predicted_m
        if is_last and (question := question_of_points(*words)):
            warn(question)


def unit_error(one: Measurement, mean: Array) -> float | None:
    """The log of a measurement over what is usual; None for a distance that is too short to say."""
    if one.other is None:
        return left(one, mean)
    ends_m = ends_of(one, mean)
    apart_m = float(np.linalg.norm(ends_m[0] - ends_m[1]))
    is_long = apart_m > LEAST_APART * np.linalg.norm(ends_m, axis=1).max()
    return math.log(one.metres / apart_m) if is_long else None


def left(one: Measurement, mean: Array) -> float:
    """What is left of the log of a measured depth."""
    return math.log(one.metres) - float(one.features @ mean)


def doubt(line: Measured, one: Measurement, depth_m: Array, room: RoomCalibration) -> str:
    """What is in doubt about a measurement, and what may be the reason."""
    if one.other is not None:
        return f"{line.where}: this distance hardly counts, because the others contradict it"
    ratio = math.exp(left(one, room.mean))
    expected_m = line.metres / ratio  # along the ray, if the line is
    return (
        f"{line.where}: {line.metres:g} m hardly counts, because the others say about "
        f"{expected_m:.2g} m: {reason(line, one, depth_m, room)}"
    )


def reason(line: Measured, one: Measurement, depth_m: Array, room: RoomCalibration) -> str:
    """What may be wrong with a measured depth."""
    ratio = math.exp(left(one, room.mean))
    for name, factor in UNITS.items():
        if abs(math.log(ratio / factor)) < math.log(3):
            return f"is it in {name}?"
    height, width = depth_m.shape
    row, column = round(line.x), round(line.y)  # swapped
    if row < height and column < width and depth_m[row, column] > 0:
        there = features_at(depth_m, line.y, line.x, line.where)
        if abs(math.log(one.metres) - float(there @ room.mean)) < math.log(ALIKE):
            return "are x and y swapped, or is it of another object?"
    return "is it of another object, or of what is behind glass or in a mirror?"
