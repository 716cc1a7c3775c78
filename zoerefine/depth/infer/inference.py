"""What an inference works on: its parts, a frame on its way, and what happened to all frames."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from zoerefine.base.progress import say
from zoerefine.depth.data.metric_points import NO_POINTS, MetricPoints, PointFiles
from zoerefine.depth.exporting.bundle.bundle import Engine
from zoerefine.depth.infer.clips import Place
from zoerefine.depth.infer.pseudo import PseudoDepth
from zoerefine.depth.infer.results import ResultFolder, digest_of
from zoerefine.depth.infer.sources import FrameSource, SourceFrame, file_fingerprint

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

    def without_points(self, names: Iterable[str]) -> int:
        """How many of these frames have no points; 0 where no points are used."""
        return sum(self.points.path(name) is None for name in names) if self.points else 0


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
