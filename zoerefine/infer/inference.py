"""What an inference works on: its parts, a frame on its way, and what happened to all frames."""

from dataclasses import dataclass, field

import numpy as np

from zoerefine.exporting.bundle import Engine
from zoerefine.infer.pseudo import PseudoDepth
from zoerefine.infer.results import ResultFolder
from zoerefine.infer.sources import FrameSource
from zoerefine.progress import say


@dataclass(frozen=True)
class Inference:
    """What is refined, by what, and where the results go."""

    engine: Engine
    source: FrameSource
    pseudo: PseudoDepth
    results: ResultFolder


@dataclass(frozen=True)
class FrameInWork:
    """A frame on its way through the pipeline.

    Attributes:
        name: of its results.
        inputs: the digest of what it is refined from.
        rgb: uint8 [H, W, 3].
        zoe: pseudo depth uint16 [H, W], metres * 256; None until ZoeDepth has been run.
        nbytes: that `FrameMemory` counts for it.
        zoe_is_new: True if ZoeDepth was run now, so its output must be written.
    """

    name: str
    inputs: str
    rgb: np.ndarray
    zoe: np.ndarray | None
    nbytes: int
    zoe_is_new: bool = False


@dataclass
class InferenceSummary:
    """What happened to the frames, by name.

    Attributes:
        kept: their files existed already.
        written: refined now, in `seconds`.
        left_out: could not be read.
    """

    kept: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def done(self) -> set[str]:
        """All frames whose files exist now."""
        return {*self.kept, *self.written}

    def leave_out(self, name: str, reason: object) -> None:
        """Record and say that a frame cannot be refined."""
        self.left_out.append(name)
        say(f"left out {name}: {reason}")

    def __str__(self) -> str:
        rate = f", {len(self.written) / self.seconds:.1f} frames/s" if self.written else ""
        counts = f"{len(self.written)} frames refined, {len(self.kept)} kept"
        return f"{counts}, {len(self.left_out)} left out{rate}"
