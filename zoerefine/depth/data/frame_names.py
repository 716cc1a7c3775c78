"""Names of frames, clips and scenes: which are refused, and the order by the numbers in them."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.depth.data.dataset import Dataset, Frame

NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)")  # in a frame's name
MAX_NAME_BYTES = 200  # file systems allow 255, with a suffix
# Control characters, halves of characters that no UTF-8 has, and changes of the text's direction.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def check_names(dataset: Dataset) -> None:
    """Raises `UserError` for names that make a path outside the folder, that cannot be printed, or
    that differ only by spaces or by how a letter with an accent is stored; those of scenes also by
    case, `_`, `-` or leading zeros.

    Pseudo depth is written to paths with the names of clips and frames, and messages show them.
    """
    frames = {frame.name for frame in dataset.frames}
    clips = {name for clip in dataset.clips for name in (clip.name, clip.scene)}
    for what, names in (("frame", frames), ("clip or scene", clips)):
        for name in names:
            if fault := _path_fault(name):
                named = f"{dataset.root}: the {what} {name[:MAX_NAME_BYTES]!a}"
                raise UserError(f"{named} {fault}: rename it")
    for what in ("scene", "clip"):
        seen: dict[str, str] = {}
        for name in sorted({getattr(frame, what) for frame in dataset.frames}):
            other = seen.setdefault(_shared_form(name, what), name)
            if other != name:
                raise UserError(
                    f"{dataset.root}: the {what}s {other!a} and {name!a} look alike, and one room "
                    "could be trained and tested on: write them the same"
                )


def _path_fault(name: str) -> str:
    """Why a name cannot be part of a path in the folder; empty if it can."""
    if UNPRINTABLE.search(name):
        return "has control characters or is not UTF-8"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"has more than {MAX_NAME_BYTES} bytes"
    if name.startswith("/") or ".." in name.split("/"):
        return "leads out of the folder"
    return ""


def _shared_form(name: str, what: str) -> str:
    """What two names that look alike have in common."""
    plain = unicodedata.normalize("NFC", name)
    if what == "scene":
        plain = re.sub(r"(?<![0-9.])0+(?=[0-9])", "", re.sub("[_-]", " ", plain.casefold()))
    return " ".join(plain.split())


def in_order(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Frames by scene and clip; within a clip by name, with numbers by their value: 9 before 10."""
    return tuple(sorted(frames, key=lambda f: (f.scene, f.clip, *number_order(f.name))))


def number_order(name: str) -> tuple[list[str | Decimal], str]:
    """A key that sorts names by the values of the numbers in them: 9 before 10, .15 before .2."""
    parts = NUMBER.split(name)
    return [Decimal(part) if number % 2 else part for number, part in enumerate(parts)], name


def follows(names: Sequence[str]) -> np.ndarray:
    """Whether each frame of a clip is the next one after that before it, bool [N].

    It is none where the numbers in their names are over 1.5 times as far apart as in most pairs:
    frames between them are missing. Names that do not ascend tell nothing.
    """
    numbers = [[Decimal(text) for text in NUMBER.findall(name)] for name in names]
    steps = [
        next((float(y - x) for x, y in zip(*pair, strict=False) if x != y), 0.0)
        for pair in pairwise(numbers)
    ]
    if not steps or min(steps) <= 0:
        return np.arange(len(names)) > 0
    near = 1.5 * np.quantile(steps, 0.5, method="lower")
    return np.array([False, *(step <= near for step in steps)])
