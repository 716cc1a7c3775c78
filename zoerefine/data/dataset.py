"""A data set as files: scenes of clips of frames, read by one of two layouts."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from zoerefine.errors import UserError
from zoerefine.files import digest_json

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


@dataclass(frozen=True)
class Dataset:
    """A data set on disk.

    Attributes:
        label: what the data are, for people.
        pseudo_label: whose depth the pseudo depth is, for people.
        depth_scale, zoe_scale: metres for one unit of the stored uint16 depths.
        frames: sorted by scene, clip and name.
    """

    root: Path
    layout: str
    label: str
    pseudo_label: str
    depth_scale: float
    zoe_scale: float
    frames: tuple[Frame, ...]
    clips: tuple[Clip, ...] = field(default=())

    @property
    def scenes(self) -> tuple[str, ...]:
        """The names of the scenes, sorted."""
        return tuple(sorted({frame.scene for frame in self.frames}))

    def source_digest(self) -> str:
        """A digest that changes when a file is added, removed or rewritten (size or time)."""
        rows = []
        for frame in self.frames:
            for path in frame.files:
                stat = path.stat()
                rows.append([os.path.relpath(path, self.root), stat.st_size, stat.st_mtime_ns])
        return digest_json([self.layout, self.depth_scale, self.zoe_scale, rows])


@dataclass(frozen=True)
class Split:
    """Scenes to train on, to choose by, and to report on; never divided inside a scene."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]


def split_scenes(
    scenes: Sequence[str],
    val_fraction: float,
    test_fraction: float,
    seed: int,
    test_scenes: Sequence[str] = (),
) -> Split:
    """Deal scenes out in a seeded order: the first to test, the next to validation, the rest to
    training. A fraction above 0 gets at least one scene; moving validation to 0 gives its
    scenes to training and leaves the test scenes as they were. `test_scenes` are tested anyway.

    Raises `UserError` where nothing is left to train on, or a test scene does not exist.
    """
    unknown = set(test_scenes) - set(scenes)
    if unknown:
        raise UserError(
            f"DATA.TEST_SCENES: no scene {min(unknown)}; there are {min(scenes)} to {max(scenes)}"
        )
    names = sorted(set(scenes) - set(test_scenes))
    order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    test = _share(len(names), test_fraction)
    val = _share(len(names), val_fraction)
    if test + val >= len(names):
        raise UserError(
            f"{len(names)} scenes cannot be split into {val} to validate, {test} to test and some "
            "to train on: lower DATA.VAL_FRACTION or DATA.TEST_FRACTION, or add scenes"
        )
    parts = order[test + val :], order[test : test + val], [*order[:test], *test_scenes]
    return Split(*(tuple(sorted(part)) for part in parts))


def _share(count: int, fraction: float) -> int:
    return 0 if fraction <= 0 else max(1, math.floor(count * fraction + 0.5))
