"""What is measured in one recording: its frames, the CSV file and the room's calibration; and the
page on which it is measured, as a web application for `base/guarded_server.py`.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from zoerefine.base.errors import UserError
from zoerefine.base.files.own_files import refuse_foreign
from zoerefine.base.progress import track
from zoerefine.depth.data.frame_names import UNPRINTABLE
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.data.networks.pseudo_source import PseudoSource
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.infer.room import FrameDepth, Measuring, Room, depth_of, measured_room
from zoerefine.depth.infer.sources import FrameSource, NetworkDepth, PseudoDepth
from zoerefine.depth.points.measured import room_of
from zoerefine.depth.points.measured_file import Measured, MeasuredFile, Row
from zoerefine.depth.points.room_prior import CENTRE_M, features

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

FILES = {"/": "text/html", "/measure.js": "text/javascript", "/measure.css": "text/css"}
FOLDER = Path(__file__).with_name("page")
LONGEST_BODY = 2**14
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
COLUMNS = "frame", "x", "y", "metres", "along"
SUGGESTED = 6  # frames, spread over the recording, in which a place to measure next is looked for
KEPT_FRAMES = 32  # pictures that stay in memory
JPEG_QUALITY = 90

Array = np.ndarray


@dataclass(frozen=True)
class Shown:
    """A frame to look at: a JPEG file, and its predicted depth."""

    jpeg: bytes
    depth: FrameDepth


class Recording:
    """The frames of a source by name, with their predicted depth.

    Attributes:
        names: of all frames, in order.
        network: what predicted the depth.
    """

    def __init__(self, engine: Engine, source: FrameSource, pseudo: PseudoDepth) -> None:
        self.engine, self.source, self.pseudo = engine, source, pseudo
        self.names = list(source.names)
        odd = next(filter(UNPRINTABLE.search, self.names), "")
        if odd:  # not every address can hold it
            fault = f"the frame {odd!a} has control characters or is not UTF-8"
            raise UserError(f"{source.label}: {fault}: rename it")
        self.network: PseudoSource = pseudo.source(self.names)
        self.depths: dict[str, FrameDepth] = {}  # of frames that are measured or suggested
        self.lock = Lock()  # one prediction at a time
        self.kept = lru_cache(KEPT_FRAMES)(self.predict)
        self.prepare()

    def shown(self, name: str) -> Shown:
        """A frame. Raises `UserError` for a name that there is not."""
        with self.lock:
            return self.kept(name)

    def predict(self, name: str) -> Shown:
        """The same, read and predicted now."""
        if name not in self.names:
            raise UserError(f"there is no frame {name!r}")
        # A video is decoded up to the frame: what a seek finds depends on the codec.
        frame = next(frame for frame in self.source.frames() if frame.name == name)
        rgb = frame.read()
        depth = depth_of(name, rgb, self.engine, self.pseudo)
        _, jpeg = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        return Shown(jpeg.tobytes(), depth)

    def predicted(self, names: set[str]) -> Mapping[str, FrameDepth]:
        """Depth of frames that exist among these names, and of those that are suggested."""
        for name in sorted(names & set(self.names) - self.depths.keys()):
            self.depths[name] = self.shown(name).depth
        return self.depths

    def prepare(self) -> None:
        """Predict depth of the suggested frames, which are spread over the recording."""
        count = min(SUGGESTED, len(self.names))
        at = (np.arange(count) + 0.5) / count * len(self.names)
        names = [self.names[int(number)] for number in at]
        found = (frame for frame in self.source.frames() if frame.name in names)
        doing = "predicting" if isinstance(self.pseudo, NetworkDepth) else "reading"
        for frame in track(found, len(names), f"{doing} depth of some frames", "frame"):
            self.depths[frame.name] = depth_of(frame.name, frame.read(), self.engine, self.pseudo)


class Session:
    """Measurements that are added and removed; each change is in the files before it returns.

    Args:
        file: of the measurements; it may not exist yet.
        out: for the calibration.
    """

    def __init__(
        self, file: Path, out: Path, recording: Recording, intrinsics: Intrinsics | None
    ) -> None:
        self.file, self.out, self.recording, self.intrinsics = file, out, recording, intrinsics
        self.id = secrets.token_hex(8)  # of this command, as a page of it says
        self.lock = RLock()  # requests come from several threads
        refuse_foreign([out], "--out")
        kept = None
        with suppress(UserError):  # one that is damaged is written anew
            kept = Room.load(out) if out.exists() else None
        if kept:
            kept.check(recording.network, recording.engine, intrinsics)
            kept.check_size(*next(iter(recording.depths.values())).pseudo_m.shape)

    def has_measurements(self) -> bool:
        return bool(MeasuredFile.read(self.file).lines)

    def measuring(self, file: MeasuredFile) -> Measuring:
        """The calibration by a file's measurements. Raises `UserError` as `measured_room`."""
        frames = self.recording.predicted({line.frame for line in file.lines})
        network, digest = self.recording.network, self.recording.engine.digest
        return measured_room(file.lines, frames, network, digest, self.intrinsics)

    def save_room(self) -> Measuring:
        """Write the calibration of the file's measurements, and return it.

        Without measurements, and where `UserError` is raised, there is no such file afterwards.
        """
        with self.lock:
            refuse_foreign([self.out], "--out")
            try:
                found = self.measuring(MeasuredFile.read(self.file))
            except UserError:
                self.out.unlink(missing_ok=True)
                raise
            if len(found.room.calibration.weights):
                found.room.save(self.out)
            else:
                self.out.unlink(missing_ok=True)
            return found

    def add(self, row: Row) -> None:
        """Add a measurement, in the place of one of the same pixel.

        Raises `UserError` where it is none, or is in another unit by itself. Then nothing changes.
        """
        with self.lock:
            file = MeasuredFile.read(self.file)
            alone = MeasuredFile(self.file, [], [], []).added(row).lines
            frames = self.recording.predicted({alone[0].frame})
            room_of(alone, {name: one.pseudo_m for name, one in frames.items()}, self.intrinsics)
            file.added(row).save()

    def remove(self, number: int, shown: Mapping[str, Any]) -> None:
        """Remove a measurement by its number in the file.

        Raises `UserError` where it is not the one that is `shown`, as `state` gives it.
        """
        with self.lock:
            file = MeasuredFile.read(self.file)
            there = line_json(file.lines[number]) if 0 <= number < len(file.lines) else None
            if there is None or not there.items() <= shown.items():
                raise UserError(f"there is no such measurement {number}: load the page again")
            file.without(number).save()

    def state(self) -> dict[str, Any]:
        """All that the page shows, as JSON. A fault of the file as a whole is in it as a text."""
        with self.lock:
            file, fault, found = MeasuredFile.read(self.file), "", None
            try:
                found = self.save_room()
            except UserError as error:
                fault = str(error)
        doubts = found.in_doubt if found else {}
        lines = [
            {"number": number, **line_json(line), "doubt": doubts.get(number, "")}
            for number, line in enumerate(file.lines)
        ]
        calibration = calibration_json(found) if found and lines else None
        return {
            "session": self.id, "file": str(self.file), "out": str(self.out),
            "frames": self.recording.names, "has_intrinsics": self.intrinsics is not None,
            "measurements": lines, "fault": fault, "calibration": calibration,
            "next": asdict(found.next) if found else None,
        }  # fmt: skip

    def pixel(self, name: str, x: int, y: int) -> dict[str, float]:
        """Predicted and corrected depth of a pixel, and its 90% interval, metres.

        Raises `UserError` for one outside the picture. Without valid depth there is nothing.
        """
        shown = self.recording.shown(name).depth
        height, width = shown.pseudo_m.shape
        if not (0 <= x < width and 0 <= y < height):
            raise UserError(f"x {x}, y {y} is outside the picture of {width}x{height}")
        if not shown.pseudo_m[y, x] > 0:
            return {}
        with self.lock:
            found = self.measuring(MeasuredFile.read(self.file)).room
        room, depth_m = found.calibration, shown.of(found.refines)
        row = features(depth_m[y, x], np.array((x + 0.5) / width), np.array((y + 0.5) / height))
        middle, apart = float(room.depth_m(row)), float(np.exp(room.spread(row)))
        return {"predicted_m": float(depth_m[y, x]), "corrected_m": middle,
                "low_m": middle / apart, "high_m": middle * apart}  # fmt: skip


def line_json(line: Measured) -> dict[str, Any]:
    return {"frame": line.frame, "pixels": [list(one) for one in line.pixels],
            "metres": line.metres, "along_ray": line.along_ray}  # fmt: skip


def calibration_json(found: Measuring) -> dict[str, Any]:
    one = found.room.calibration
    middle = features(np.array(CENTRE_M), np.array(0.5), np.array(0.5))
    return {
        "factor": asdict(one.factor()), "range": asdict(one.exponent()), "at_m": CENTRE_M,
        "within": float(np.exp(one.spread(middle))), "count": len(one.weights),
        "refiner": str(found.room.refiner or ""),
    }  # fmt: skip


def page(session: Session) -> "WSGIApplication":

    def application(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        request.max_content_length = LONGEST_BODY
        try:
            response = answer(session, request)
        except UserError as fault:
            response = as_json({"fault": str(fault)}, 400)
        except HTTPException as fault:  # a missing argument, too long a body
            response = as_json({"fault": fault.description}, fault.code or 400)
        response.headers.extend(HEADERS)
        return response(environ, start_response)

    return application


def answer(session: Session, request: Request) -> Response:
    """The answer to a request. Raises `UserError` for what the user has to correct."""
    words, path = request.args, request.path
    if request.method == "GET" and path in FILES:
        name = path.strip("/") or "page.html"
        return Response((FOLDER / name).read_bytes(), content_type=f"{FILES[path]}; charset=utf-8")
    if request.method == "GET" and path == "/frame.jpg":
        return Response(session.recording.shown(words["name"]).jpeg, content_type="image/jpeg")
    if request.method == "GET" and path == "/pixel":
        x, y = (whole_number(words[name], name) for name in ("x", "y"))
        return as_json(session.pixel(words["name"], x, y))
    if request.method == "GET" and path == "/state":
        return as_json(session.state())
    changes: dict[str, Callable[[dict[str, Any]], None]] = {
        "/add": lambda values: session.add({
            name: str(values[name]) for name in COLUMNS if name in values
        }),
        "/remove": lambda values: session.remove(
            whole_number(values.get("number"), "number"), values
        ),
    }  # fmt: skip
    if request.method == "POST" and path in changes:
        values = body_of(request)
        if values.get("session") != session.id:
            raise UserError("this page was opened for another command: load it again")
        changes[path](values)
        return as_json(session.state())
    return as_json({"fault": f"no {request.method} of {path}"}, 404)


def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Raises `UserError` for anything else."""
    found = None
    if request.mimetype == "application/json":
        with suppress(ValueError, RecursionError):
            found = json.loads(request.get_data())
    if not isinstance(found, dict):
        raise UserError("a change is a JSON object")
    return found


def whole_number(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name} must be a whole number, got {str(value)[:40]!r}") from None


def as_json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, content_type="application/json")
