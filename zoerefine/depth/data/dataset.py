"""A data set as files: scenes of clips of frames, whatever layout they were read from."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file, digest_json
from zoerefine.depth.data.depth_codec import DepthEncoding
from zoerefine.depth.data.intrinsics import Intrinsics
from zoerefine.depth.data.networks.pseudo_source import PseudoSource, sources_of

T = TypeVar("T")


@dataclass(frozen=True)
class Frame:
    """One moment of one clip, and the files of its four fields (None for a missing one).

    Attributes:
        intrinsics: of the camera that took the picture; None where they are unknown.
        points: metric points of the picture, a CSV or PNG file (zoerefine/depth/points).
        sizes_may_differ: depth and pseudo depth show the picture's field of view, but their files
            may have another size.
    """

    clip: str
    name: str
    scene: str
    rgb: Path
    depth: Path | None
    zoe: Path | None
    objects: Path | None
    intrinsics: Intrinsics | None = None
    sizes_may_differ: bool = False
    points: Path | None = None

    @property
    def files(self) -> dict[str, Path]:
        """The existing files by the field that each is read for, RGB first."""
        fields = ("rgb", "depth", "zoe", "objects", "points")
        return {name: path for name in fields if (path := getattr(self, name)) is not None}

    def states(self) -> list[tuple[int, ...]]:
        """Size, times and inode of each of `files`, which tell whether one was exchanged."""
        return [file_state(path) for path in self.files.values()]


@dataclass(frozen=True)
class Clip:
    """What is known of a clip beyond its frames; empty or 0 where it is unknown."""

    name: str
    scene: str
    title: str = ""
    speed: int = 0  # of the moving objects, m/s
    classes: tuple[str, ...] = ()  # of the moving objects


@dataclass(frozen=True)
class Dataset:
    """A data set on disk.

    Attributes:
        layout: its reader's name in `registries.READERS`; `open_dataset` sets it.
        pictures: of `picture_digests`, of all clips also where some were selected; empty where
            nobody asked for it.
        label: what the data are, for messages and reports.
        pseudo_label: what the pseudo depth is called where no pseudo.json names its network.
        depth_encoding: of all its true depth files.
        frames: by scene and clip; in a clip in the order of their times.
        clips: all clips of the frames.
        unpaired: a line for each file that belongs to no frame.
    """

    root: Path
    label: str
    pseudo_label: str
    depth_encoding: DepthEncoding
    frames: tuple[Frame, ...]
    clips: tuple[Clip, ...] = field(default=())
    unpaired: tuple[str, ...] = ()
    layout: str = ""
    pictures: Mapping[str, str] = field(default_factory=dict)

    @property
    def scenes(self) -> tuple[str, ...]:
        """The names of the scenes, sorted."""
        return tuple(sorted({frame.scene for frame in self.frames}))

    @property
    def pseudo_sources(self) -> set[PseudoSource]:
        """What predicted the pseudo depth of the frames. Raises `UserError`, see `read_source`."""
        return sources_of(frame.zoe for frame in self.frames if frame.zoe is not None)

    def fingerprints(self) -> np.ndarray:
        """A number a frame, uint64 [N]; see `fingerprint`."""
        return np.array(
            [self.fingerprint(frame, frame.states()) for frame in self.frames], np.uint64
        )

    def fingerprint(self, frame: Frame, states: Sequence[tuple[int, ...]]) -> int:
        """A number that changes with the fields, names, sizes and times of a frame's files.

        Args:
            states: what `frame.states()` has given.
        """
        digest = hashlib.blake2b(digest_size=8)
        for (field_name, path), (size, time_ns, *_) in zip(
            frame.files.items(), states, strict=True
        ):
            text = f"{field_name}\0{os.path.relpath(path, self.root)}\0{size}\0{time_ns}\0"
            digest.update(text.encode(errors="surrogateescape"))
        return int.from_bytes(digest.digest(), "little")


def file_state(path: Path) -> tuple[int, ...]:
    """Size, time of modification, inode, and time of the inode's change; zeros for no file."""
    try:
        found = os.stat(path)
    except OSError:  # packing the frame says what is wrong with it
        return 0, 0, 0, 0
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def picture_digests(frames: Iterable[Frame]) -> dict[str, str]:
    """By scene, what tells its pictures from those of any other, wherever they are copied to.

    It is a digest of the names and sizes of all of them, and of the bytes of the first.
    """
    by_scene: dict[str, list[Path]] = {}
    for frame in frames:
        by_scene.setdefault(frame.scene, []).append(frame.rgb)
    found = {}
    for scene, paths in sorted(by_scene.items()):
        files = sorted((path.name, file_state(path)[0], str(path)) for path in paths)
        with suppress(OSError, UserError):  # a missing or damaged picture is named elsewhere
            facts = [digest_file(files[0][2]), [file[:2] for file in files]]
            found[scene] = digest_json(facts)[:16]
    return found


def select(
    dataset: Dataset,
    scenes: Sequence[str] = (),
    classes: Sequence[str] = (),
    speeds: Sequence[int] = (),
    objects: str = "",
) -> Dataset:
    """The selected clips of a data set; an empty argument selects all.

    Args:
        scenes, speeds: of the clips to use.
        classes: a clip is used if any of its moving objects is of one of these.
        objects: `single` class of moving objects in a clip, or `several`.

    Raises `UserError` for a name that no clip has, or where no clip is left.
    """
    known: dict[str, tuple[Sequence[Any], set[Any]]] = {
        "SCENES": (scenes, {clip.scene for clip in dataset.clips}),
        "CLASSES": (classes, {name for clip in dataset.clips for name in clip.classes}),
        "SPEEDS": (speeds, {clip.speed for clip in dataset.clips if clip.speed}),
    }
    for key, (wanted, existing) in known.items():
        for name in wanted:
            if name not in existing:
                listed = ", ".join(map(str, sorted(existing))) or "none"
                raise UserError(
                    f"DATA.{key}: no clip of {dataset.root} has {name!r}; known: {listed}"
                )
    clips = tuple(
        clip
        for clip in dataset.clips
        if (not scenes or clip.scene in scenes)
        and (not classes or set(classes) & set(clip.classes))
        and (not speeds or clip.speed in speeds)
        and (not objects or objects == {0: "", 1: "single"}.get(len(clip.classes), "several"))
    )
    names = {clip.name for clip in clips}
    if not clips:
        raise UserError(
            f"no clip of {dataset.root} matches all of DATA.SCENES, CLASSES, SPEEDS, OBJECTS"
        )
    frames = tuple(frame for frame in dataset.frames if frame.clip in names)
    return replace(dataset, clips=clips, frames=frames)


def evenly_spaced(items: Sequence[T], count: int) -> list[T]:
    """Up to `count` of the items, the first and the last among them, in their order."""
    places = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return [items[place] for place in places]
