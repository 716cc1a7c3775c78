"""Where pictures come from: a folder, a pattern, or a video."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from zoerefine.errors import UserError
from zoerefine.image_files import read_rgb

PICTURES = {".jpg", ".jpeg", ".png"}
FILMED = 24.0  # pictures a second where a source does not say: HabitatDyn's
UNSURE = 0.01  # share of a video's frames by which a container may be wrong about their number


@dataclass(frozen=True)
class Shot:
    """A picture to refine.

    Attributes:
        name: of its results: its file's path inside the source, without a suffix.
        stamp: changes with its file.
        read: gives it as uint8 [H, W, 3], RGB; raises `UserError` where it cannot be read.
    """

    name: str
    stamp: str
    read: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Pictures:
    """Picture files, by name.

    Attributes:
        label: for people.
        files: by name, in order.
        tree: the folder that is read with all folders in it, if it is one.
    """

    label: str
    files: dict[str, Path]
    tree: Path | None
    fps: float = FILMED

    @property
    def names(self) -> Sequence[str]:
        """Of all pictures, in order."""
        return list(self.files)

    @property
    def folders(self) -> set[Path]:
        """In which files are read."""
        return {path.parent for path in self.files.values()}

    def shots(self) -> Iterator[Shot]:
        """Every picture, in order."""
        for name, path in self.files.items():
            yield Shot(name, file_stamp(path), partial(read_rgb, path))


@dataclass(frozen=True)
class Video:
    """A video file; its frames are named by their number, six digits from 000000 on."""

    label: str
    path: Path
    count: int  # as the container says
    fps: float
    tree: Path | None = None

    @property
    def names(self) -> Sequence[str]:
        """Of all frames that the container speaks of; none where it does not."""
        return [f"{number:06d}" for number in range(self.count)]

    @property
    def folders(self) -> set[Path]:
        """In which files are read."""
        return {self.path.parent}

    def shots(self) -> Iterator[Shot]:
        """Every frame, in order.

        Raises `UserError` at the end of a video that was cut short.
        """
        capture, stamp, number = cv2.VideoCapture(str(self.path)), file_stamp(self.path), 0
        try:
            while True:
                there, bgr = capture.read()
                if not there:
                    break
                yield Shot(f"{number:06d}", f"{stamp} {number}", partial(to_rgb, bgr))
                number += 1
        finally:
            capture.release()
        if number < self.count * (1 - UNSURE):
            raise UserError(
                f"{self.path} ends after {number} of its {self.count} frames: copy it again"
            )


FrameSource = Pictures | Video


def open_source(rgb: str) -> FrameSource:
    """A folder (and folders in it), a pattern such as 'clips/*/left*.jpg', a video or a picture.

    Raises `UserError` where there is nothing to read.
    """
    path = Path(rgb)
    if path.is_dir():
        return Pictures(rgb, by_name(rgb, path, path.rglob("*")), tree=path)
    if path.is_file():
        if not is_picture(path):
            return open_video(path)
        return Pictures(rgb, by_name(rgb, path.parent, [path]), tree=None)
    if glob.has_magic(rgb):
        matches = map(Path, glob.glob(rgb, recursive=True))
        return Pictures(rgb, by_name(rgb, pattern_root(path), matches), tree=None)
    raise UserError(f"no {rgb}: give --rgb a folder, a video or a quoted pattern that is there")


def by_name(label: str, root: Path, paths: Iterable[Path]) -> dict[str, Path]:
    """The pictures among `paths`. Raises `UserError` for none, or two of one name."""
    files: dict[str, Path] = {}
    for path in sorted(filter(is_picture, paths)):
        name = str(path.relative_to(root).with_suffix(""))
        if name in files:
            raise UserError(
                f"{files[name]} and {path} differ in their suffix alone, and so would have one "
                "result: move one of them away"
            )
        files[name] = path
    if not files:
        raise UserError(f"{label} holds no jpg or png pictures")
    return files


def is_picture(path: Path) -> bool:
    """By its name; half-written files of ours begin with a dot."""
    return path.suffix.lower() in PICTURES and not path.name.startswith(".")


def pattern_root(pattern: Path) -> Path:
    """The folder down to which a pattern has no wildcards."""
    return next(parent for parent in pattern.parents if not glob.has_magic(str(parent)))


def open_video(path: Path) -> Video:
    """Raises `UserError` for a file that OpenCV cannot play."""
    capture = cv2.VideoCapture(str(path))
    try:
        if not capture.isOpened() or not capture.grab():
            raise UserError(f"{path} is no video that OpenCV can play, nor a jpg or png picture")
        count = max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)))
        return Video(str(path), path, count, capture.get(cv2.CAP_PROP_FPS) or FILMED)
    finally:
        capture.release()


def to_rgb(bgr: np.ndarray) -> np.ndarray:
    """A video's frame as pictures are."""
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


def file_stamp(path: Path) -> str:
    """Changes with a file's name, size or time; empty where there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return ""
    return f"{path.name} {stat.st_size} {stat.st_mtime_ns}"


def check_pairs(folder: Path, names: Sequence[str], what: str) -> None:
    """Raises `UserError` where a folder holds a file for not one of the names, if any is known."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}: give an existing one")
    if names and not any((folder / f"{name}.png").exists() for name in names):
        raise UserError(
            f"{folder} has no {what} for any of {len(names)} pictures: names must be the same, the "
            f"first would be {folder / names[0]}.png"
        )
