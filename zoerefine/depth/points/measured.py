"""From distances that were measured once to a room's calibration, and to what is wrong with them.

Importing this file does not import torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.messages import one_line
from zoerefine.depth.data.depth_unit import UNITS, question_of_unit
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.data.metric_points import refuse_outside
from zoerefine.depth.points.measured_file import Measured
from zoerefine.depth.points.room import (
    Measurement,
    RoomCalibration,
    calibrate,
    ends_of,
    unseen_errors,
)
from zoerefine.depth.points.room_prior import CENTRE_M, NAMES, RoomPrior, features

DOUBTFUL = 0.35  # of the weight of a measurement that agrees
LEAST_APART = 0.25  # of their depth: pixels nearer to each other may be on both sides of an edge
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
        may_be_zones=False,
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


def predicted_depth_m(values: Array) -> float:
    """The predicted depth of `features`."""
    return CENTRE_M * math.exp(values[NAMES.index("range")])


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
