"""Folds of rooms: which rooms are tested together, with networks trained on all others."""

import json
from fnmatch import fnmatch
from pathlib import Path

from zoerefine.base.errors import UserError

Fold = tuple[str, ...]  # names of scenes


def read_folds(path: Path, scenes: tuple[str, ...]) -> list[Fold]:
    """The scenes of each fold: those that it names first, then those that match its patterns.

    Raises `UserError` where a scene is in no fold, or in two.
    """
    listed = json.loads(path.read_text())["folds"]
    folds: list[list[str]] = [[] for _ in listed]
    for scene in scenes:
        named = [n for n, names in enumerate(listed) if scene in names]
        places = named or [
            n for n, names in enumerate(listed) if any(fnmatch(scene, name) for name in names)
        ]
        if len(places) != 1:
            raise UserError(f"{path}: scene {scene} is in {len(places)} folds, not in one")
        folds[places[0]].append(scene)
    return [tuple(fold) for fold in folds]


def folds_in_turn(scenes: tuple[str, ...], count: int) -> list[Fold]:
    """Folds for data without a file of folds: scene k is in fold k modulo `count`."""
    return [scenes[n::count] for n in range(count)]
