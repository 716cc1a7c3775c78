"""What a job left in its workspace: files that its commit does not have, and changed ones."""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zoerefine.launch.git_commands import ISOLATED, GitError, git

BYTECODE_FOLDER, BYTECODE_SUFFIX = "__pycache__", ".pyc"  # Python makes them again
GITLINK = "160000"
DIFF = ("diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv")


@dataclass(frozen=True)
class LeftFiles:
    """What differs from the commit in a workspace.

    Attributes:
        names: paths of new and changed files, symbolic links among them; relative, sorted.
        spoiled: whether files of the commit were changed or deleted, so that no other run can use
            the workspace.
    """

    names: tuple[str, ...]
    spoiled: bool


def left_files(folder: Path, tree: str) -> LeftFiles:
    """What a job left in a workspace.

    Ignored files count; Python's bytecode, pipes and sockets do not. What the job committed is not
    in `tree`, so it counts as well. Where the repository is damaged, all files count.

    Args:
        tree: the commit or tree that was checked out.
    """
    try:
        listing = git("ls-tree", "-r", "-z", "--full-tree", tree, folder=folder, env=ISOLATED)
        words = (*DIFF, "--ignore-submodules=all", tree)
        changed = git(*words, folder=folder, env=ISOLATED).split("\0")
    except (GitError, OSError):  # OSError: there is no such folder
        return LeftFiles(tuple(sorted(files_below(folder, {".git"}))), spoiled=True)
    entries = [entry.split("\t", 1) for entry in listing.split("\0") if entry]
    submodules = {name: facts.split()[2] for facts, name in entries if facts.startswith(GITLINK)}
    committed = {name for _, name in entries} - submodules.keys()
    differing = committed.intersection(changed)
    names = {name for name in differing if is_file(folder / name)}
    names |= set(files_below(folder, {".git", *submodules})) - committed
    spoiled = bool(differing)
    for path, commit in submodules.items():
        inner = left_files(folder / path, commit)
        names |= {f"{path}/{name}" for name in inner.names}
        spoiled |= inner.spoiled
    return LeftFiles(tuple(sorted(names)), spoiled)


def is_file(path: Path) -> bool:
    """Whether there is a file or a link, and not a folder."""
    return path.is_symlink() or path.is_file()


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
            elif has_content(entry) and not entry.name.endswith(BYTECODE_SUFFIX):
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
