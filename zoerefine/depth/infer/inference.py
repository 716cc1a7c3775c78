"""An inference: its parts, its frames, decoded before they are needed, and what happened to all."""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import check_pairs
from zoerefine.base.messages import counted, warn
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.depth_unit import ask_unit, refuse_points_in_other_unit
from zoerefine.depth.data.metric_points import NO_POINTS, MetricPoints, PointFiles
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.exporting.engine import tensors_by_arrays
from zoerefine.depth.infer.results import (
    ResultFolder,
    digest_of,
    file_fingerprint,
    has_provenance,
)
from zoerefine.depth.infer.sources import (
    FrameSource,
    NetworkDepth,
    PictureFiles,
    PseudoDepth,
    SourceFrame,
)
from zoerefine.depth.infer.stream import ClipOrder, Place
from zoerefine.depth.points.for_engines import VERSION, spread_without_points

if TYPE_CHECKING:
    from torch import Tensor

POINTS_ALONE = "none: metric points alone"  # in the place of a bundle's digest
FRAMES_AHEAD = 16  # decoded before the engine takes them, or waiting in an incomplete batch
# A waiting frame has 9 bytes a pixel: RGB, pseudo depth, refined depth and spread. While an engine
# refines it on the CPU, it takes about 70. With this number a limit of a quarter of the free memory
# holds in both cases.
BYTES_PER_PIXEL = 30
VIDEO_FRAME = re.compile(r"[0-9]{6,}")  # the name of one

LeaveOut = Callable[[str, object], None]  # records a frame's name, and why it cannot be refined
# The finished frames by name, each with the digest of what its files are made from.
Done = Mapping[str, str]


@dataclass(frozen=True)
class Inference:
    """What is refined, by what, and where the results go.

    Attributes:
        points: metric points that correct what the engine predicts; None: there are none.
    """

    engine: Engine
    source: FrameSource
    pseudo: PseudoDepth
    results: ResultFolder
    points: PointFiles | None = None

    def inputs_of(self, frame: SourceFrame) -> str:
        """The digest of everything that a frame's results are made from, beside the engine."""
        fingerprints = [frame.fingerprint, self.pseudo.fingerprint(frame.name)]
        if self.points:
            path = self.points.path(frame.name)
            fingerprints.append(f"{VERSION} {file_fingerprint(path) if path else ''}")
        return digest_of(*fingerprints)

    def has_pseudo(self, name: str, inputs: str) -> bool:
        """Whether a frame's pseudo depth is given, or the network's is kept."""
        if not isinstance(self.pseudo, NetworkDepth):
            return True
        return has_provenance(self.pseudo.path(name), self.pseudo.provenance(inputs))

    def points_of(self, name: str, height: int, width: int) -> MetricPoints:
        """The metric points of a frame; none where it has none."""
        return self.points.read(name, height, width) if self.points else NO_POINTS

    def check_unit(self, name: str, points: MetricPoints, zoe_u16: np.ndarray) -> None:
        """Raises `UserError` where a frame's points are in another unit than its pseudo depth."""
        if self.points and len(points):
            file = str(self.points.path(name))
            refuse_points_in_other_unit(file, points, zoe_u16)

    def ask_unit(self) -> None:
        """Warn where points seem to be in another unit, by frames from all over the source.

        Only frames with a file of pseudo depth count. Raises `UserError` where they must be.
        """
        if self.points:
            found = [(self.points.path(name), self.pseudo.path(name)) for name in self.source.names]
            ask_unit(str(self.points.folder), [(one, zoe) for one, zoe in found if one])

    def depths(self, name: str, inputs: str) -> tuple[np.ndarray, np.ndarray]:
        """Pseudo and refined depth of a finished frame, uint16 [H, W]; see `results.read`."""
        return read_zoe(self.pseudo.path(name)), self.results.read(name, inputs)

    def without_points(self, names: Iterable[str]) -> int:
        """How many of these frames have no points; 0 where no points are used."""
        return sum(self.points.path(name) is None for name in names) if self.points else 0


def check_files(
    source: FrameSource, folder: Path, what: str, suffixes: Sequence[str] = (".png",)
) -> None:
    """Warns of files beyond the last frame of a video, and of those of nearly all that begin at 1.

    Raises `UserError` as `check_pairs`, where they count a video's frames from 1, and where they
    are the pictures.
    """
    check_pairs(folder, source.names, what, suffixes)
    if isinstance(source, PictureFiles):
        for name, picture in source.files.items():
            file = folder / f"{name}.png"
            if file.exists() and picture.samefile(file):
                raise UserError(f"{picture} is the picture {name} and its {what}: give another one")
        return
    files = [path.stem for path in folder.iterdir() if path.suffix in suffixes]
    numbers = sorted(int(name) for name in files if VIDEO_FRAME.fullmatch(name))
    if numbers[-1] < source.count:
        if numbers[0] == 1 and len(numbers) >= source.count * 9 // 10:
            warn(
                f"{folder} has {what} from 000001 to {numbers[-1]:06d}, and the frames of "
                f"{source.label} begin at 000000: if the files count from 1, rename them"
            )
        return
    if numbers[0] == 1:
        raise UserError(
            f"{folder} has {what} from 000001 to {numbers[-1]:06d}, and the {source.count} frames "
            f"of {source.label} are 000000 to {source.count - 1:06d}: rename the files"
        )
    beyond = sum(number >= source.count for number in numbers)
    warn(
        f"{folder}: {counted(beyond, 'file')} of {what}, up to {numbers[-1]:06d}, beyond the "
        f"{source.count} frames of {source.label}: are they of this video?"
    )


def points_alone() -> Engine:
    """Inference without a refiner: an engine that takes points and leaves depth as it is.

    Points correct depth before and after it.
    """

    def pseudo_depth(rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> list[np.ndarray]:
        return [zoe_u16]

    manifest = {"outputs": ["depth"], "commit": "none", "takes_points": True}
    forward = tensors_by_arrays(pseudo_depth)
    return with_spread(Engine(forward, pseudo_depth, manifest, POINTS_ALONE, "cpu", 1))


def with_spread(engine: Engine) -> Engine:
    """An engine without confidence, with the spread of frames of which nothing is known."""
    return followed(engine, lambda depth_u16: [depth_u16, spread_without_points(depth_u16)])


def followed(engine: Engine, correct: Callable[[np.ndarray], list[np.ndarray]]) -> Engine:
    """An engine whose depth a function of arrays changes: uint16 [B, H, W] to depth and spread."""

    def on_arrays(rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> list[np.ndarray]:
        return correct(engine(rgb_u8, zoe_u16))

    def forward(rgb_u8: "Tensor", zoe_u16: "Tensor") -> "list[Tensor]":
        import torch

        depth = engine.outputs(rgb_u8, zoe_u16)[0]
        return [torch.from_numpy(one).to(depth.device) for one in correct(depth.cpu().numpy())]

    manifest = engine.manifest | {"outputs": ["depth", "spread"]}
    return replace(engine, forward=forward, on_arrays=on_arrays, manifest=manifest)


@dataclass(frozen=True)
class FrameInWork:
    """A frame on its way through the pipeline.

    Attributes:
        name: of its results.
        inputs: the digest of what it is refined from.
        rgb: uint8 [H, W, 3].
        zoe: pseudo depth uint16 [H, W], metres * 256; None until the network has been run.
        points: metric points that correct the engine's output.
        nbytes: that `FrameMemory` counts for it.
        zoe_is_new: True if the network was run now, so its output must be written.
        place: in its clip, with --stream: its results are made from the frames before, too.
    """

    name: str
    inputs: str
    rgb: np.ndarray
    zoe: np.ndarray | None
    points: MetricPoints
    nbytes: int
    zoe_is_new: bool = False
    place: Place | None = None


@dataclass
class InferenceSummary:
    """What happened to the frames, by name.

    Attributes:
        kept: their files existed already.
        written: refined now, in `seconds`.
        inputs: the digest of what each is made from.
        left_out: could not be read.
    """

    kept: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def done(self) -> Done:
        """All frames whose files exist now."""
        return {name: self.inputs[name] for name in (*self.kept, *self.written)}

    def leave_out(self, name: str, reason: object) -> None:
        """Record and say that a frame cannot be refined."""
        self.left_out.append(name)
        warn(f"left out {name}: {reason}")

    def __str__(self) -> str:
        rate = f", {len(self.written) / self.seconds:.1f} frames/s" if self.written else ""
        counts = f"{len(self.written)} frames refined, {len(self.kept)} kept"
        return f"{counts}, {len(self.left_out)} left out{rate}"


class FrameMemory:
    """The bytes of the frames in memory; a context manager.

    One thread takes memory, any thread frees it. A frame larger than the limit is let in alone.

    Args:
        limit: of the bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self._closed = False
        self._changed = threading.Condition()

    def __enter__(self) -> "FrameMemory":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True  # after an error nobody frees memory any more
            self._changed.notify_all()

    def has_room(self, nbytes: int) -> bool:
        """Whether `take` would return at once."""
        return self.used + nbytes <= self.limit or not self.used

    def take(self, nbytes: int) -> None:
        """Count a frame that is going to be read; waits if there is no room.

        Then it waits until half of the memory is free, so that the next batches are large.
        """
        with self._changed:
            if not self.has_room(nbytes):
                half = max(0, self.limit // 2 - nbytes)
                self._changed.wait_for(lambda: self.used <= half or self._closed)
            self.used += nbytes

    def free(self, nbytes: int) -> None:
        """Count off a frame that is written, or could not be read."""
        with self._changed:
            self.used -= nbytes
            self._changed.notify_all()


@dataclass(frozen=True)
class FrameToRead:
    """A frame that is known, but not decoded.

    Attributes:
        nbytes: that `FrameMemory` counts for it.
        read: decodes it; raises `UserError` if it cannot be read.
    """

    name: str
    nbytes: int
    read: Callable[[], FrameInWork]


def read_ahead(
    frames: Iterable[FrameToRead],
    pool: ThreadPoolExecutor,
    leave_out: LeaveOut,
    memory: FrameMemory,
) -> Iterator[FrameInWork | None]:
    """Frames in order, decoded by the pool before they are needed.

    None comes before a wait for memory: frames must not wait for others then.
    """
    waiting: deque[tuple[str, int, Future[FrameInWork]]] = deque()

    def oldest_unless_broken() -> Iterator[FrameInWork]:
        name, nbytes, reading = waiting.popleft()
        try:
            decoded = reading.result()
        except UserError as error:
            leave_out(name, error)
            memory.free(nbytes)
        else:
            yield decoded

    for frame in frames:
        if not memory.has_room(frame.nbytes):
            while waiting:
                yield from oldest_unless_broken()
            yield None
        memory.take(frame.nbytes)
        waiting.append((frame.name, frame.nbytes, pool.submit(frame.read)))
        if len(waiting) > FRAMES_AHEAD:
            yield from oldest_unless_broken()
    while waiting:
        yield from oldest_unless_broken()


def frames_to_read(job: Inference, summary: InferenceSummary) -> Iterator[FrameToRead]:
    """The frames of an inference that are not done yet, in order."""
    clips = ClipOrder() if job.results.with_stream else None
    for frame in readable_frames(job.source, summary):
        inputs = job.inputs_of(frame)
        place = clips.place_of(frame, inputs) if clips else None
        summary.inputs[frame.name] = place.inputs if place else inputs
        is_done = job.results.is_done(frame.name, summary.inputs[frame.name])
        if is_done and job.has_pseudo(frame.name, inputs):
            summary.kept.append(frame.name)
            if clips:
                clips.keep(frame)
            continue
        nbytes = frame.pixels() * BYTES_PER_PIXEL
        read = partial(read_frame, frame, inputs, job, nbytes, place)
        yield FrameToRead(frame.name, nbytes, read)


def readable_frames(source: FrameSource, summary: InferenceSummary) -> Iterator[SourceFrame]:
    """The frames of a source, until it cannot be read any further."""
    try:
        yield from source.frames()
    except UserError as error:
        summary.leave_out(source.label, error)


def read_frame(
    frame: SourceFrame, inputs: str, job: Inference, nbytes: int, place: Place | None
) -> FrameInWork:
    """Decode a frame. Raises `UserError` for a damaged file, or two different sizes."""
    rgb, zoe = frame.read(), job.pseudo.read(frame.name, inputs)
    if zoe is not None:
        require_one_size(rgb, zoe, job.pseudo.path(frame.name))
    points = job.points_of(frame.name, *rgb.shape[:2])
    if zoe is not None:
        job.check_unit(frame.name, points, zoe)
    return FrameInWork(frame.name, inputs, rgb, zoe, points, nbytes, place=place)


def require_one_size(rgb: np.ndarray, zoe: np.ndarray, what: object) -> None:
    """Raises `UserError` where a picture and its pseudo depth, called `what`, differ in size."""
    if zoe.shape != rgb.shape[:2]:
        sizes = " and ".join(f"{a.shape[1]}x{a.shape[0]}" for a in (rgb, zoe))
        raise UserError(f"the picture and {what} differ in size: {sizes}")


def batches_of_one_size(
    frames: Iterator[FrameInWork | None], size: int
) -> Iterator[list[FrameInWork]]:
    """Batches of at most `size` frames of one picture size, all with or all without pseudo depth.

    Frames of a rare size wait for others, but the number of waiting frames is bounded, and after
    None no frame waits.
    """
    groups: dict[tuple[object, bool], list[FrameInWork]] = {}
    for frame in frames:
        if frame is None:
            yield from groups.values()
            groups.clear()
            continue
        key = frame.rgb.shape, frame.zoe is None
        groups.setdefault(key, []).append(frame)
        if len(groups[key]) == size:
            yield groups.pop(key)
        elif sum(map(len, groups.values())) >= 2 * size + FRAMES_AHEAD:
            yield groups.pop(next(iter(groups)))  # the one that has waited longest
    yield from groups.values()
