"""What the layouts of recordings share: each recording is a folder with certain files in it."""

import codecs
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import read_given_file
from zoerefine.depth.data.dataset import Clip, Dataset, Frame
from zoerefine.depth.data.depth_codec import DepthEncoding

PSEUDO = "pseudo"  # the folder of a recording's pseudo depth
MAX_BYTES = 2**28  # of a list; a line of 100 bytes a frame makes 2.7 million frames


def read_text(path: Path) -> str:
    """A UTF-8 file's text, without the byte-order mark that it may begin with.

    Raises `UserError` for a file that is too large, in another encoding, or with zero bytes.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(f"{path} has {size} bytes, more than {MAX_BYTES}: split the data set")
        data = read_given_file(path, MAX_BYTES)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path} line 1: the file is UTF-16; save it as UTF-8")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise UserError(
            f"{path} line {line}: byte {byte:#x} is not UTF-8; save it as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path} line {line} has a zero byte: save the file as UTF-8 text")
    return text.removeprefix("\ufeff")


@dataclass(frozen=True)
class Recordings:
    """A `Layout` (`readers.py`) of folders that each are a recording, and a clip.

    Attributes:
        marks: what a folder must contain to be a recording.
        read_recording: its frames by their times, and a line for each file without a partner.
    """

    MARK: str
    marks: tuple[str, ...]
    label: str
    depth_encoding: DepthEncoding
    read_recording: Callable[[Path], tuple[list[Frame], list[str]]]

    def matches(self, root: Path) -> bool:
        return any(recording_folders(root, self.marks))

    def read(self, root: Path) -> Dataset:
        """Pair the files of all recordings. Raises `UserError` as `read_recording`."""
        frames, unpaired = [], []
        for recording in recording_folders(root, self.marks):
            found, strays = self.read_recording(recording)
            frames += found
            unpaired += strays
        clips = sorted({(frame.clip, frame.scene) for frame in frames})
        return Dataset(
            root=root,
            label=self.label,
            pseudo_label="pseudo depth",
            depth_encoding=self.depth_encoding,
            frames=tuple(sorted(frames, key=lambda f: (f.scene, f.clip))),
            clips=tuple(Clip(name, scene) for name, scene in clips),
            unpaired=tuple(unpaired),
        )

    def pseudo_path(self, root: Path, frame: Frame) -> Path:
        """`pseudo/<the picture's stem>.png` of its recording."""
        recording = root if has_marks(root, self.marks) else root / frame.clip
        return recording / PSEUDO / f"{frame.rgb.stem}.png"

    def enter_pseudo(self, root: Path, paths: Mapping[Path, Path]) -> None:
        """Nothing to enter: files are found by their names."""


def recording_folders(root: Path, marks: tuple[str, ...]) -> Iterator[Path]:
    """The folders that contain all of `marks`: the root alone, or the folders directly below it."""
    if has_marks(root, marks):
        yield root
        return
    for path in sorted(root.glob(f"[!.]*/{marks[0]}")):
        folder = path.relative_to(root).parts[0]
        if has_marks(root / folder, marks):
            yield root / folder


def has_marks(folder: Path, marks: tuple[str, ...]) -> bool:
    """Whether a folder is a recording."""
    return all((folder / mark).exists() for mark in marks)


def files_by_stem(folder: Path, suffix: str) -> dict[str, Path]:
    """The files of a folder, sorted by name; empty where there is no such folder."""
    return {path.stem: path for path in sorted(folder.glob(f"[!.]*{suffix}"))}


def without_picture(pictures: Collection[str], folder: str, *others: dict[str, Path]) -> list[str]:
    """A line for each file by stem that belongs to no frame; `folder` is that of the pictures."""
    return [
        f"{path} belongs to no frame: there is no {folder}/{stem}.jpg"
        for files in others
        for stem, path in files.items()
        if stem not in pictures
    ]


def numbered_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a text file with their numbers, without comments (#) and empty lines.

    Raises `UserError` as `read_text` does.
    """
    return [
        (number, line.strip())
        for number, line in enumerate(read_text(path).splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


def number_rows(path: Path) -> list[list[str]]:
    """The rows of a text file of numbers, as words; empty where there is no file."""
    return [line.split() for _, line in numbered_lines(path)] if path.exists() else []
