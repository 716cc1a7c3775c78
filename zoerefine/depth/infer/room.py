"""A room's calibration as a file, and an engine whose depth it corrects.

The file is JSON. It holds what measurements said, and of what: the depth network, the bundle, the
size of the camera's pictures and its intrinsics where they were given. It refuses all others. It
also says whether the bundle's refiner is used in this room, or left away.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_json, write_json
from zoerefine.base.files.own_files import JSON_MARK
from zoerefine.base.messages import say
from zoerefine.depth.data.depth_codec import ZOE_UNIT_M
from zoerefine.depth.data.intrinsics import Intrinsics, checked_intrinsics
from zoerefine.depth.data.layouts.recordings import read_text
from zoerefine.depth.data.networks.pseudo_source import PseudoSource, source_from_json
from zoerefine.depth.exporting import SPREAD_UNITS
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.infer.inference import POINTS_ALONE, followed, require_one_size
from zoerefine.depth.infer.sources import FrameSource, NetworkDepth, PseudoDepth
from zoerefine.depth.points.measured import room_of
from zoerefine.depth.points.measured_file import Measured
from zoerefine.depth.points.refiner_choice import RefinerChoice
from zoerefine.depth.points.room import Place, RoomCalibration, RoomPictures, next_place
from zoerefine.depth.points.room_prior import CENTRE_M, NAMES, features

FORMAT = 5  # of older ones the depth was another
LARGEST = 1e3  # of a coefficient or a variance

Array = np.ndarray


@dataclass(frozen=True)
class Room:
    """A calibration, and what it holds for.

    Attributes:
        network: what predicted the depth that was measured at.
        bundle: digest of the engine that may refine it.
        height, width: of the camera's pictures.
        intrinsics: of the camera; None: not given.
        refiner: whether the refiner is used; None: there is none.
    """

    calibration: RoomCalibration
    network: PseudoSource
    bundle: str
    height: int
    width: int
    intrinsics: Intrinsics | None = None
    refiner: RefinerChoice | None = None

    @property
    def refines(self) -> bool:
        """Whether the calibration is of what an engine returns, not of pseudo depth."""
        return self.refiner is not None and self.refiner.used

    def as_json(self) -> dict[str, Any]:
        """All that decides what it does."""
        one = self.calibration
        return {
            "format": FORMAT, "bundle": self.bundle, "network": asdict(self.network),
            "height": self.height, "width": self.width,
            "intrinsics": self.intrinsics and list(astuple(self.intrinsics)),
            "mean": one.mean.tolist(),
            "covariance": one.covariance.tolist(), "pixel_variance": one.pixel_variance,
            "frame_variance": one.frame_variance, "weights": one.weights.tolist(),
            "band": one.band, "refiner": self.refiner and asdict(self.refiner),
        }  # fmt: skip

    def __str__(self) -> str:
        one = self.calibration
        middle = features(np.array(CENTRE_M), np.array(0.5), np.array(0.5))
        factor = np.exp(one.spread(middle))
        return (
            f"{len(one.weights)} times (in brackets: 90% intervals)\n"
            f"factor {one.factor()}: true depth over predicted depth, at {CENTRE_M:g} m\n"
            f"range {one.exponent()}: above 1, near is nearer and far is farther than predicted; "
            "below 1, the reverse\n"
            f"after correction, 90% of the pixels at {CENTRE_M:g} m are within a factor of "
            f"{factor:.2f} of the truth"
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `as_json`, in hex."""
        return digest_json(self.as_json())

    def save(self, path: Path) -> None:
        write_json(path, JSON_MARK | self.as_json() | {"digest": self.digest})

    @classmethod
    def load(cls, path: str | Path) -> "Room":
        """Read the file. Raises `UserError` for one that is damaged, or was changed."""
        try:
            found = json.loads(read_text(Path(path)))
            room = cls(
                RoomCalibration(
                    np.array(found["mean"], np.float64),
                    np.array(found["covariance"], np.float64),
                    float(found["pixel_variance"]),
                    float(found["frame_variance"]),
                    np.array(found["weights"], np.float64),
                    float(found["band"]),
                ),
                source_from_json(found["network"]), str(found["bundle"]),
                int(found["height"]), int(found["width"]),
                checked_intrinsics(found["intrinsics"], str(path)) if found["intrinsics"] else None,
                RefinerChoice(**found["refiner"]) if found["refiner"] else None,
            )  # fmt: skip
            whole = room.digest == found["digest"] and found["format"] == FORMAT
        except (ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole or not usable(room.calibration):
            raise UserError(
                f"{path} is no room calibration, or it was changed: make it again from the "
                "measurements (--measured FILE.csv)"
            )
        return room

    def check(
        self, network: PseudoSource, engine: Engine, intrinsics: Intrinsics | None = None
    ) -> None:
        """Say where one of them is unknown: this network, or that which was measured.

        Raises `UserError` for depth of another network, another bundle or another camera.
        """
        is_comparable = self.network.is_known == network.is_known
        if is_comparable and not network.is_like(self.network):
            raise UserError(
                f"the room was measured with depth of {self.network}, and this is depth of "
                f"{network}: measure it again with this network"
            )
        if engine.digest != self.bundle:
            ours, theirs = (
                "no bundle" if one.startswith(POINTS_ALONE) else f"the bundle {one[:16]}"
                for one in (engine.digest, self.bundle)
            )
            raise UserError(
                f"the room was measured with {theirs}, and this is {ours}: measure it again with "
                "this, into another file"
            )
        if self.intrinsics and intrinsics and self.intrinsics != intrinsics:
            raise UserError(
                f"the room was measured with a camera of {self.intrinsics}, and this one has "
                f"{intrinsics}: another camera needs measurements of its own"
            )
        if not is_comparable:
            say(
                f"the room was measured with depth of: {self.network}; it now corrects that of: "
                f"{network.now}"
            )

    def check_size(self, height: int, width: int) -> None:
        """Raises `UserError` for pictures of another size."""
        if (height, width) != (self.height, self.width):
            raise UserError(
                f"the room was measured in pictures of {self.width}x{self.height}, and this one "
                f"has {width}x{height}: another camera needs measurements of its own"
            )

    @cached_property
    def pictures(self) -> RoomPictures:
        """The correction of pictures."""
        return RoomPictures.of(self.calibration, self.height, self.width)

    def corrected(self, depth_u16: Array) -> list[Array]:
        """Depth of pictures, uint16 [B, H, W] in metres * 256, corrected, and its spread.

        A valid pixel stays valid. Raises `UserError` for pictures of another size.
        """
        self.check_size(*depth_u16.shape[1:])
        outputs = np.empty((2, *depth_u16.shape), np.uint16)
        for number, depth in enumerate(depth_u16):
            corrected_m, spread = self.pictures.corrected_m(depth * np.float32(ZOE_UNIT_M))
            for output, units, values in zip(
                outputs, (1 / ZOE_UNIT_M, SPREAD_UNITS), (corrected_m, spread), strict=True
            ):
                values *= np.float32(units)
                np.minimum(np.rint(values, out=values), 65535, out=values)
                np.maximum(values, depth > 0, out=output[number], casting="unsafe")
        return list(outputs)

    def engine(self, engine: Engine) -> Engine:
        """An engine with this correction behind it, or in its place. Its confidence is the room's.

        What is no `Room.refines` is not run.
        """
        digest = f"{engine.digest}, room {self.digest[:16]}"
        if not self.refines:
            engine = replace(
                engine,
                forward=lambda rgb_u8, zoe_u16: [zoe_u16],
                on_arrays=lambda rgb_u8, zoe_u16: [zoe_u16],
            )
        found = followed(engine, self.corrected)
        return replace(found, manifest=found.manifest | {"takes_points": False}, digest=digest)


def usable(room: RoomCalibration) -> bool:
    """Whether all numbers of a calibration are there, finite and of a possible size."""
    count = len(NAMES)
    shapes = room.mean.shape, room.covariance.shape
    values = np.concatenate([
        room.mean.ravel(), room.covariance.ravel(),
        [room.pixel_variance, room.frame_variance, room.band],
    ])  # fmt: skip
    return shapes == ((count,), (count, count)) and bool((np.abs(values) < LARGEST).all())


@dataclass(frozen=True)
class Measuring:
    """A room that was calibrated, what is in doubt, and what to measure next.

    Attributes:
        in_doubt: by the number of the measurement.
    """

    room: Room
    in_doubt: dict[int, str]
    next: Place

    def __str__(self) -> str:
        place = self.next
        choice = f"{self.room.refiner}\n" if self.room.refiner else ""
        return (
            f"measured {self.room}\n{choice}"
            f"a measurement of {place.words} of frame {place.frame}, near x {place.x} y {place.y}, "
            f"would help most: it removes {place.gain:.0%} of what is uncertain (of the variance)"
        )


def measure(
    lines: Sequence[Measured],
    engine: Engine,
    source: FrameSource,
    pseudo: PseudoDepth,
    intrinsics: Intrinsics | None,
) -> Measuring:
    """Calibrate a room by what was measured in some frames of a source.

    Raises `UserError` as `measured_room`.
    """
    frames = predicted({line.frame for line in lines}, engine, source, pseudo)
    network = pseudo.source(source.names)
    return measured_room(lines, frames, network, engine.digest, intrinsics)


@dataclass(frozen=True)
class FrameDepth:
    """Predicted depth of a frame, float32 [H, W] metres; refined if there is a refiner."""

    pseudo_m: Array
    refined_m: Array | None = None

    def of(self, refines: bool) -> Array:
        """Refined depth, or pseudo depth."""
        return self.refined_m if refines and self.refined_m is not None else self.pseudo_m


def measured_room(
    lines: Sequence[Measured],
    frames: Mapping[str, FrameDepth],
    network: PseudoSource,
    bundle: str,
    intrinsics: Intrinsics | None,
) -> Measuring:
    """Calibrate a room, with its refiner or without it, whichever suits the measurements.

    Args:
        frames: the measured frames, and others that may be measured next.
        network, bundle: what predicted their depth.

    Raises:
        UserError: as `room_of`, and for frames of two sizes.
    """
    sides_m = {name: one.pseudo_m for name, one in frames.items()}
    found, choice = room_of(lines, sides_m, intrinsics), None
    refined_m = {name: one.refined_m for name, one in frames.items() if one.refined_m is not None}
    if refined_m:
        refined = room_of(lines, refined_m, intrinsics)
        choice = RefinerChoice.of(found, refined)
        if choice.used:
            found, sides_m = refined, refined_m
    sizes = {depth_m.shape for depth_m in sides_m.values()}
    if len(sizes) > 1:
        raise UserError(f"frames have the sizes {sorted(sizes)}: a calibration is of one camera")
    [(height, width)] = sizes
    room = Room(found.calibration, network, bundle, height, width, intrinsics, choice)
    return Measuring(room, found.in_doubt, next_place(found.calibration, sides_m, found.used))


def predicted(
    names: Set[str], engine: Engine, source: FrameSource, pseudo: PseudoDepth
) -> dict[str, FrameDepth]:
    """Depth of the frames with these names."""
    found: dict[str, FrameDepth] = {}
    for frame in source.frames():
        if len(found) == len(names):
            break
        if frame.name in names:
            found[frame.name] = depth_of(frame.name, frame.read(), engine, pseudo)
    return found


def depth_of(name: str, rgb: Array, engine: Engine, pseudo: PseudoDepth) -> FrameDepth:
    """Depth of one frame, whose picture is uint8 [H, W, 3].

    Raises `UserError` for a damaged file, or two different sizes.
    """
    zoe = pseudo.read(name, "")
    if zoe is None and isinstance(pseudo, NetworkDepth):
        zoe = pseudo.predict(rgb[None], [name])[0]
    assert zoe is not None
    require_one_size(rgb, zoe, pseudo.path(name))
    unit = np.float32(ZOE_UNIT_M)
    if engine.digest == POINTS_ALONE:
        return FrameDepth(zoe * unit)
    return FrameDepth(zoe * unit, engine(rgb[None], zoe[None])[0] * unit)
