"""The files below a folder: found without following a link, and folders that hold none removed."""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

BYTECODE_FOLDER, BYTECODE_SUFFIX = "__pycache__", ".pyc"  # Python makes them again


@dataclass
class Contents:
    """What is in a folder now.

    Attributes:
        files: files and links by their paths. A folder that cannot be read counts as a file.
        bytecode: what Python makes again from the modules' sources.
        others: pipes, sockets and devices.
        folders: all folders, each after the folder that holds it.
    """

    files: dict[str, os.stat_result] = field(default_factory=dict)
    bytecode: dict[str, os.stat_result] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


def scan(folder: Path) -> Contents:
    """Everything below a folder. No link is followed."""
    found = Contents()
    waiting = [""]
    for place in waiting:
        try:
            entries = list(os.scandir(folder / place))
        except OSError:
            with suppress(FileNotFoundError):
                if place:
                    found.files[place] = (folder / place).lstat()
            continue
        for entry in entries:
            name = f"{place}/{entry.name}" if place else entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif not has_content(entry):
                found.others.append(name)
            else:
                kind = found.bytecode if is_bytecode(name) else found.files
                with suppress(FileNotFoundError):
                    kind[name] = entry.stat(follow_symlinks=False)
    found.folders = waiting[1:]
    return found


def is_bytecode(name: str) -> bool:
    """Whether Python made a file from a module's source, and can make it again."""
    return name.endswith(BYTECODE_SUFFIX) or f"/{BYTECODE_FOLDER}/" in f"/{name}"


def files_below(folder: Path, left_out: Collection[str] = ()) -> Iterator[str]:
    """Paths of files and links below a folder, relative to it. No link is followed.

    A folder that cannot be read is named itself. Bytecode, pipes and sockets are left out.

    Args:
        left_out: relative paths of folders that are not entered.
    """
    waiting = [""]
    while waiting:
        place = waiting.pop()
        try:
            entries = list(os.scandir(folder / place))
        except PermissionError:
            yield place
            continue
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            name = f"{place}/{entry.name}" if place else entry.name
            if entry.is_dir(follow_symlinks=False):
                if name not in left_out and entry.name != BYTECODE_FOLDER:
                    waiting.append(name)
            elif has_content(entry) and not is_bytecode(name):
                yield name


def has_content(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry is a file or a link. Pipes and sockets hold nothing."""
    return entry.is_symlink() or entry.is_file(follow_symlinks=False)


def remove_empty_folders(folder: Path) -> None:
    """Remove folders in which no file is left, with pipes and sockets; `folder` itself stays.

    A commit has no empty folders, so a job made them. Repositories keep theirs.
    """
    places = [folder]
    for place in places:
        with suppress(OSError):
            for entry in os.scandir(place):
                path = place / entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != ".git" or not (path / "HEAD").exists():
                        places.append(path)
                elif not has_content(entry):
                    path.unlink()
    for place in reversed(places[1:]):
        with suppress(OSError):  # it is not empty
            place.rmdir()
