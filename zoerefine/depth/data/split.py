"""Training, validation and test scenes. A scene belongs to one part, with all its frames."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import read_given_file, write_json
from zoerefine.base.run_dir import LARGEST_DOCUMENT

PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Split:
    """The names of the scenes of each part, sorted.

    Attributes:
        file_digest: SHA-256 of the file that it was read from, in hex; empty without one.
    """

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]
    file_digest: str = field(default="", compare=False, kw_only=True)

    @property
    def scenes(self) -> set[str]:
        return {*self.train, *self.val, *self.test}


def split_scenes(
    scenes: Sequence[str],
    val_fraction: float,
    test_fraction: float,
    seed: int,
    test_scenes: Sequence[str] = (),
) -> Split:
    """Split scenes in a seeded random order: first test, then validation, the rest training.

    A validation fraction of 0 moves its scenes to training; the test scenes stay the same.

    Args:
        val_fraction, test_fraction: shares of the scenes; above 0 at least one scene.
        test_scenes: test scenes in addition to the random ones.

    Raises:
        UserError: no training scene is left, or a test scene does not exist.
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
            f"{len(names)} scenes cannot be split: {val} for validation and {test} for test leave "
            "none for training; lower DATA.VAL_FRACTION or DATA.TEST_FRACTION, or add scenes"
        )
    parts = order[test + val :], order[test : test + val], [*order[:test], *test_scenes]
    return Split(*(tuple(sorted(set(part))) for part in parts))


def _share(count: int, fraction: float) -> int:
    return 0 if fraction <= 0 else max(1, math.floor(count * fraction + 0.5))


def write_split(split: Split, path: Path) -> None:
    """Write a split as JSON: {"train": [scenes], "val": [scenes], "test": [scenes]}."""
    write_json(path, {part: getattr(split, part) for part in PARTS})


def read_split(path: Path, scenes: Sequence[str] = ()) -> Split:
    """Read a split; with `scenes`, only those of them that it names.

    Raises `UserError` where the file is no split, names a scene twice, or leaves no training
    scene.
    """
    try:
        data = read_given_file(path, LARGEST_DOCUMENT)
        parts = json.loads(data)
        lists = [[str(name) for name in parts[part]] for part in PARTS]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no split of scenes ({error}): make one with zoerefine data split"
        ) from None
    names = [name for part in lists for name in part]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"{path} names {twice[0]} twice: a scene belongs to one part")
    split = Split(*(tuple(sorted(part)) for part in lists), file_digest=sha256(data).hexdigest())
    return among(split, scenes or names, path)


def among(split: Split, scenes: Sequence[str], path: Path) -> Split:
    """The scenes of a split's file that the data have, too.

    Raises `UserError` where it leaves no training scene.
    """
    parts = (tuple(scene for scene in getattr(split, part) if scene in scenes) for part in PARTS)
    found = Split(*parts, file_digest=split.file_digest)
    if not found.train:
        raise UserError(f"{path} has no training scene among the scenes of the data")
    return found


def write_or_check_split(split: Split, path: Path) -> None:
    """Write a run's split, or check that it is unchanged, so that no test scene is trained on.

    Raises `UserError` where it has changed.
    """
    if not path.exists():
        write_split(split, path)
    elif read_split(path) != split:
        raise UserError(
            f"{path} is not the split that the config gives now: use another RUN.NAME, or the "
            "data and the split file that the run started with"
        )
