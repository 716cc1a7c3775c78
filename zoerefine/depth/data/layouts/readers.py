"""Opens a data set: finds which of the registered layouts a folder has."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol

from zoerefine.base import registries
from zoerefine.base.errors import UserError
from zoerefine.depth.data.dataset import Dataset, Frame, picture_digests
from zoerefine.depth.data.depth_codec import DepthEncoding
from zoerefine.depth.data.frame_names import check_names
from zoerefine.depth.data.intrinsics import Intrinsics

LEVELS = 6  # from a picture's folder upwards: HabitatDyn's need five


class Layout(Protocol):
    """How one kind of data folder is read: a module with these names, or an object.

    `registries.READERS` has a row for each and gives it its name; folders are tried in the order
    of the rows. `frames_csv.py` is an example.

    Attributes:
        MARK: the path in a folder that shows this layout, for messages.
    """

    MARK: str

    def matches(self, root: Path) -> bool:
        """Whether a folder has this layout. Must be fast: it is asked of any folder."""

    def read(self, root: Path) -> Dataset:
        """Find all frames; `root` is absolute. Pictures need not be opened.

        Raises `UserError`, with file and line, for a folder that cannot be used.
        """

    def pseudo_path(self, root: Path, frame: Frame) -> Path:
        """Where the pseudo depth of a frame belongs that has none."""

    def enter_pseudo(self, root: Path, paths: Mapping[Path, Path]) -> None:
        """Record new pseudo depth files, by the RGB file of their frame, so that `read` finds
        them. A layout that finds files by name does nothing."""


def open_dataset(root: str | Path) -> Dataset:
    """Read a folder of any registered layout.

    Raises `UserError` where the folder is missing, empty or of no known layout, or a file that
    belongs to a frame is missing.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"no data folder {root}: give an existing one (in a config: DATA.ROOT)")
    name = _layout_name(root)
    if name is None:
        marks = ", ".join(load_layout(name).MARK for name in registries.READERS)
        raise UserError(f"{root} is no data set: it has none of {marks}")
    dataset = replace(load_layout(name).read(root.resolve()), layout=name)
    if not dataset.frames:
        raise UserError(": ".join([f"{root} holds no frames", *dataset.unpaired[:1]]))
    check_names(dataset)
    return dataset


def load_layout(name: str) -> Layout:
    reader: Layout = registries.READERS.load(name)
    return reader


def stated_encodings(paths: Iterable[Path]) -> dict[Path, DepthEncoding | None]:
    """The encodings that data sets state for depth files, or for the files in a folder, by path.

    Links are followed. None where the folder, or that of a file, holds no depth of a data set
    around it.
    """

    @cache
    def depth_of(root: Path) -> tuple[DepthEncoding, set[str]]:
        """The encoding of a data set, and the folders that hold its depth."""
        dataset = open_dataset(root)
        listed = (frame.depth for frame in dataset.frames if frame.depth is not None)
        return dataset.depth_encoding, {os.path.dirname(os.path.realpath(one)) for one in listed}

    @cache
    def stated(folder: Path) -> DepthEncoding | None:
        for root in (folder, *folder.parents):
            if _layout_name(root) is not None:
                encoding, folders = depth_of(root)
                if any(Path(one).is_relative_to(folder) for one in folders):
                    return encoding
        return None

    real = {path: path.resolve() for path in paths}
    return {path: stated(one if one.is_dir() else one.parent) for path, one in real.items()}


def stated_intrinsics(pictures: Collection[Path]) -> tuple[Path, dict[Path, Intrinsics]] | None:
    """The data set around pictures, and the camera that it states for each resolved path.

    Where it states a single one, that is the camera of pictures that it does not list, too. None
    where there is no such data set, or it states none or several for a picture. One that cannot be
    read counts as none: the pictures themselves may have nothing to do with it.
    """
    given = {path.resolve() for path in pictures}
    for dataset in _around(given):
        frames = [(frame.rgb.resolve(), frame) for frame in dataset.frames]
        pairs = {(path, frame.intrinsics) for path, frame in frames if path in given}
        cameras = {camera for _, camera in pairs}
        if len(cameras) == 1:
            pairs = {(path, camera) for path in given for camera in cameras}
        found = {path: camera for path, camera in pairs if camera}
        if len(found) == len(pairs) == len(given):
            return dataset.root, found
    return None


def pictures_of_scenes(pictures: Collection[Path]) -> tuple[dict[Path, str], dict[str, str]]:
    """The scene of each picture, by its resolved path, that a data set around them lists, and the
    digests of these scenes (`picture_digests`). Empty where there is none."""
    given = {path.resolve() for path in pictures}
    for dataset in _around(given):
        by_path = {frame.rgb.resolve(): frame.scene for frame in dataset.frames}
        scenes = {path: by_path[path] for path in given if path in by_path}
        if scenes:
            names = set(scenes.values())
            return scenes, picture_digests(one for one in dataset.frames if one.scene in names)
    return {}, {}


def _around(pictures: Collection[Path]) -> Iterator[Dataset]:
    """The data sets in the folder of resolved pictures and above, but those that cannot be read."""
    folder = Path(os.path.commonpath([path.parent for path in pictures])) if pictures else Path()
    for root in (folder, *folder.parents)[:LEVELS] if pictures else ():
        if _layout_name(root) is not None:
            with suppress(UserError):
                yield open_dataset(root)


def _layout_name(root: Path) -> str | None:
    return next((name for name in registries.READERS if load_layout(name).matches(root)), None)
