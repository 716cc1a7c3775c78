"""`infer --stream`: frames in order, clip by clip, where each depends on those before it.

A clip is a folder of pictures, or a video. The digest of a frame's inputs includes those of all
frames before it in its clip, so a result is kept only if nothing before it has changed. What the
filter remembers of a frame follows from the frame's picture and its depth in the files. So a frame
whose file is missing is made from the one before it, and the same command continues at any frame
with the same bits.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from zoerefine.depth.infer.results import ResultFolder, digest_of
from zoerefine.depth.infer.sources import SourceFrame
from zoerefine.depth.infer.stream import Memory, remember, step

VERSION = "stream 1"  # changes when the filter changes


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
        self.last = Place(clip, number, digest_of(VERSION, before, inputs), kept)
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
