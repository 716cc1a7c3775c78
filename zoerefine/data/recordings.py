"""What the layouts of recordings share: each recording is a folder with certain files in it."""

from collections.abc import Iterator
from pathlib import Path

from zoerefine.data.text_files import read_text

PSEUDO = "pseudo"  # the folder of a recording's pseudo depth


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


def pseudo_file(root: Path, clip: str, rgb: Path, marks: tuple[str, ...]) -> Path:
    """Where the pseudo depth of a picture belongs: `pseudo/<its stem>.png` of its recording."""
    recording = root if has_marks(root, marks) else root / clip
    return recording / PSEUDO / f"{rgb.stem}.png"


def files_by_stem(folder: Path, suffix: str) -> dict[str, Path]:
    """The files of a folder, sorted by name; empty where there is no such folder."""
    return {path.stem: path for path in sorted(folder.glob(f"[!.]*{suffix}"))}


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
