"""What an inference works on: its parts, a frame on its way, and what happened to all frames.

With --stream frames come in order, clip by clip, and each depends on those before it. A clip is a
folder of pictures, or a video. The digest of a frame's inputs includes those of all frames before
it in its clip, so a result is kept only if nothing before it has changed. What the filter remembers
of a frame follows from the frame's picture and its depth in the files. So a frame whose file is
missing is made from the one before it, and the same command continues at any frame with the same
bits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoerefine.base.progress import say
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.metric_points import NO_POINTS, MetricPoints, PointFiles
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.exporting.engine import tensors_by_arrays
from zoerefine.depth.infer.pseudo import PseudoDepth
from zoerefine.depth.infer.results import ResultFolder, digest_of
from zoerefine.depth.infer.sources import FrameSource, SourceFrame, file_fingerprint
from zoerefine.depth.infer.stream import Memory, remember, step
from zoerefine.depth.points.for_engines import spread_without_points

if TYPE_CHECKING:
    from torch import Tensor

POINTS_ALONE = "none: metric points alone"  # in the place of a bundle's digest
STREAM_VERSION = "stream 1"  # changes when the filter changes

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
            fingerprints.append(f"points {file_fingerprint(path) if path else ''}")
        return digest_of(*fingerprints)

    def points_of(self, name: str, height: int, width: int) -> MetricPoints:
        """The metric points of a frame; none where it has none."""
        return self.points.read(name, height, width) if self.points else NO_POINTS

    def depths(self, name: str, inputs: str) -> tuple[np.ndarray, np.ndarray]:
        """Pseudo and refined depth of a finished frame, uint16 [H, W]; see `results.read_own`."""
        return read_zoe(self.pseudo.path(name)), self.results.read_depth(name, inputs)

    def without_points(self, names: Iterable[str]) -> int:
        """How many of these frames have no points; 0 where no points are used."""
        return sum(self.points.path(name) is None for name in names) if self.points else 0


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

    def on_arrays(rgb_u8: np.ndarray, zoe_u16: np.ndarray) -> list[np.ndarray]:
        [depth] = engine.on_arrays(rgb_u8, zoe_u16)
        return [depth, spread_without_points(depth)]

    def forward(rgb_u8: "Tensor", zoe_u16: "Tensor") -> "list[Tensor]":
        import torch

        [depth] = engine.forward(rgb_u8, zoe_u16)
        spread = torch.from_numpy(spread_without_points(depth.cpu().numpy()))
        return [depth, spread.to(depth.device)]

    manifest = engine.manifest | {"outputs": ["depth", "spread"]}
    return replace(engine, forward=forward, on_arrays=on_arrays, manifest=manifest)


@dataclass(frozen=True)
class KeptFrame:
    """A frame whose files exist already."""

    number: int
    inputs: str
    source: SourceFrame


@dataclass(frozen=True)
class Place:
    """Where a frame stands in its clip.

    Attributes:
        number: of the frame in the source.
        inputs: the digest of what it and all frames before it in the clip are made from.
        kept: the last frame before it in the clip whose files exist already; None without one.
    """

    clip: str
    number: int
    inputs: str
    kept: KeptFrame | None


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
        place: in its clip, with --stream.
    """

    name: str
    inputs: str
    rgb: np.ndarray
    zoe: np.ndarray | None
    points: MetricPoints
    nbytes: int
    zoe_is_new: bool = False
    place: Place | None = None

    @property
    def all_inputs(self) -> str:
        """The digest of what its results are made from: with --stream also the frames before."""
        return self.place.inputs if self.place else self.inputs


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
        say(f"left out {name}: {reason}")

    def __str__(self) -> str:
        rate = f", {len(self.written) / self.seconds:.1f} frames/s" if self.written else ""
        counts = f"{len(self.written)} frames refined, {len(self.kept)} kept"
        return f"{counts}, {len(self.left_out)} left out{rate}"


class ClipOrder:
    """Finds the places of a source's frames, which must come in order."""

    def __init__(self) -> None:
        self.last: Place | None = None

    def place_of(self, frame: SourceFrame, inputs: str) -> Place:
        """The place of the next frame.

        Args:
            inputs: the digest of what this frame alone is made from.
        """
        clip, last = str(Path(frame.name).parent), self.last
        number = last.number + 1 if last else 0
        follows = last is not None and last.clip == clip
        before, kept = (last.inputs, last.kept) if last and follows else ("", None)
        self.last = Place(clip, number, digest_of(STREAM_VERSION, before, inputs), kept)
        return self.last

    def keep(self, frame: SourceFrame) -> None:
        """Note that the files of the last frame exist already."""
        assert self.last
        last = self.last
        self.last = replace(last, kept=KeptFrame(last.number, last.inputs, frame))


class ClipFilter:
    """Makes the depth of frames steady, which must come in order. Some may be missing."""

    def __init__(self, results: ResultFolder) -> None:
        self.results = results
        self.last: Place | None = None
        self.memory: Memory | None = None

    def steady(self, place: Place, rgb_u8: np.ndarray, refined_u16: np.ndarray) -> np.ndarray:
        """Steady depth of the next frame, uint16 [H, W], from its picture and refined depth.

        Raises `UserError` if the files of a kept frame before it are no longer there, or others.
        """
        follows = self.last is not None and self.last.clip == place.clip
        newest = self.last.number if self.last and follows else -1
        if place.kept and place.kept.number > newest:
            self.memory = self.memory_of(place.kept)
        elif not follows:
            self.memory = None
        self.last = place
        steady_u16, self.memory = step(self.memory, rgb_u8, refined_u16)
        return steady_u16

    def memory_of(self, kept: KeptFrame) -> Memory:
        """What is remembered of a frame whose files exist."""
        depth_u16 = self.results.read_depth(kept.source.name, kept.inputs)
        return remember(kept.source.read(), depth_u16)
