"""A data set as files: scenes of clips of frames, read by one of two layouts."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.errors import UserError

ZOE_SCALE = 1 / 256  # ZoeDepth's own files: metres = value / 256


@dataclass(frozen=True)
class Frame:
    """One moment of one clip, and the files of its four fields (None where there is none)."""

    clip: str
    name: str
    scene: str
    rgb: Path
    depth: Path | None
    zoe: Path | None
    objects: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are there."""
        fields = (self.rgb, self.depth, self.zoe, self.objects)
        return tuple(path for path in fields if path is not None)


@dataclass(frozen=True)
class Clip:
    """What is known of a clip beyond its frames; empty or 0 where the layout does not tell."""

    name: str
    scene: str
    title: str = ""
    speed: int = 0  # of the moving objects, m/s
    classes: tuple[str, ...] = ()  # of the moving objects


@dataclass(frozen=True)
class Dataset:
    """A data set on disk.

    Attributes:
        label: what the data are, for people.
        pseudo_label: whose depth the pseudo depth is, for people.
        depth_scale, zoe_scale: metres for one unit of the stored uint16 depths.
        frames: sorted by scene, clip and name.
        clips: all clips of the frames.
        unpaired: files that belong to no frame, each a line for people.
    """

    root: Path
    layout: str
    label: str
    pseudo_label: str
    depth_scale: float
    zoe_scale: float
    frames: tuple[Frame, ...]
    clips: tuple[Clip, ...] = field(default=())
    unpaired: tuple[str, ...] = ()

    @property
    def scenes(self) -> tuple[str, ...]:
        """The names of the scenes, sorted."""
        return tuple(sorted({frame.scene for frame in self.frames}))

    def stamps(self) -> np.ndarray:
        """A number for each frame, uint64 [N], that changes with its files' names, sizes, times."""
        return np.array([self._stamp(frame) for frame in self.frames], np.uint64)

    def _stamp(self, frame: Frame) -> int:
        digest = hashlib.blake2b(digest_size=8)
        for path in frame.files:
            name = os.path.relpath(path, self.root)
            try:
                stat = os.stat(path)
                text = f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\0"
            except OSError:  # packing it will say what is wrong
                text = f"{name}\0\0\0"
            digest.update(text.encode(errors="surrogateescape"))
        return int.from_bytes(digest.digest(), "little")


@dataclass(frozen=True)
class Selection:
    """Which clips to use; an empty part means all.

    Attributes:
        scenes, classes, speeds: a clip is used if its own is among them (any of its classes).
        objects: `single` class of moving objects, or `several`.
    """

    scenes: Sequence[str] = ()
    classes: Sequence[str] = ()
    speeds: Sequence[int] = ()
    objects: str = ""

    def fits(self, clip: Clip) -> bool:
        """Whether a clip is used."""
        several = len(clip.classes) > 1
        return (
            (not self.scenes or clip.scene in self.scenes)
            and (not self.classes or bool(set(self.classes) & set(clip.classes)))
            and (not self.speeds or clip.speed in self.speeds)
            and self.objects in ("", "several" if several else "single" if clip.classes else None)
        )


def select(dataset: Dataset, selection: Selection) -> Dataset:
    """The clips of a data set that a selection names.

    Raises `UserError` where it names something that no clip has, or nothing is left.
    """
    if selection.objects not in ("", "single", "several"):
        raise UserError(f"DATA.OBJECTS must be single, several or empty, got {selection.objects!r}")
    known: dict[str, tuple[Sequence[Any], set[Any]]] = {
        "SCENES": (selection.scenes, {clip.scene for clip in dataset.clips}),
        "CLASSES": (selection.classes, {name for clip in dataset.clips for name in clip.classes}),
        "SPEEDS": (selection.speeds, {clip.speed for clip in dataset.clips if clip.speed}),
    }
    for key, (wanted, there) in known.items():
        for name in wanted:
            if name not in there:
                listed = ", ".join(map(str, sorted(there))) or "none are known"
                raise UserError(f"DATA.{key}: no clip of {dataset.root} has {name!r}; {listed}")
    clips = tuple(clip for clip in dataset.clips if selection.fits(clip))
    names = {clip.name for clip in clips}
    if not clips:
        raise UserError(f"no clip of {dataset.root} fits DATA.SCENES, CLASSES, SPEEDS and OBJECTS")
    frames = tuple(frame for frame in dataset.frames if frame.clip in names)
    return replace(dataset, clips=clips, frames=frames)
