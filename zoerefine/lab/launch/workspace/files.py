"""Files of a workspace: found without following a link, and placed there beside the commit's.

Placed are a job's config, where that works at its own place alone, files that the config includes,
and links to the files of --input. They are taken back before what the job left is collected.

    <run>/inputs.json    the folders of --input, with the SHA-256 of every file
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file, write_json
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.included import CommitFiles, Included, read_included

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


INPUTS_FILE = "inputs.json"
Inputs = Mapping[str, Mapping[str, str]]  # SHA-256 of files by their paths, by folder


def digest_inputs(folders: Iterable[Path], repository: Path | None) -> Inputs:
    """The files of some folders, by the folder that becomes the workspace.

    What a run's job left lies where the job wrote it, a folder of the repository at its own path,
    and another folder by its name.

    Raises `UserError` where there is no such folder, a file in it cannot be read, or two folders
    have a file for one path.
    """
    found: dict[str, dict[str, str]] = {}
    for given in folders:
        folder = RunDir(given).left if RunDir(given).left_file.is_file() else given
        if not folder.is_dir():
            raise UserError(f"--input {given} is not a folder, nor a run that left files")
        folder = folder.resolve()
        root = folder if folder.name == "left" and folder.parent == given.resolve() else None
        if root is None:
            own = repository is not None and folder.is_relative_to(repository)
            root = repository if own and repository is not None else folder.parent
        found.setdefault(str(root), {}).update(digest_folder(folder, root))
    refuse_same_paths(found)
    return found


def refuse_same_paths(inputs: Inputs) -> None:
    """Raises `UserError` where two folders have a file for one path of a workspace."""
    places: dict[str, str] = {}
    for root, names in inputs.items():
        for name in names:
            if (other := places.setdefault(name, root)) != root:
                raise UserError(
                    f"--input: {other}/{name} and {root}/{name} would lie at one place in the "
                    "workspace: rename one"
                )
    for name, root in places.items():
        for above in map(str, Path(name).parents):
            if above in places:
                raise UserError(
                    f"--input: {root}/{name} would lie inside the file {places[above]}/{above}: "
                    "rename one"
                )


def digest_folder(folder: Path, root: Path) -> Iterator[tuple[str, str]]:
    """The path below a root and the SHA-256 of every file in a folder."""
    for name in sorted(files_below(folder)):
        path = folder / name
        try:
            facts = path.stat()
            digest = digest_once(path, facts.st_size, facts.st_mtime_ns, facts.st_ino)
        except OSError as error:
            raise UserError(f"--input: {path} cannot be read: {error.strerror}") from None
        yield str(path.relative_to(root)), digest


@lru_cache(maxsize=100_000)
def digest_once(path: Path, *_stamp: int) -> str:
    """SHA-256 of a file, read once while its facts stay: a queue plans many jobs."""
    return digest_file(path)


def place_files(config: Path, included: Included, inputs: Inputs, folder: Path) -> None:
    """Write the config and what it includes into a workspace, and link the inputs there.

    Raises `UserError` where the commit has a file of an input's path.
    """
    links = {folder / name: Path(source) / name for source in inputs for name in inputs[source]}
    for place, source in links.items():
        if os.path.lexists(place) and not is_link_to(place, source):
            raise UserError(f"--input: the commit has a file in the place of {source}: rename it")
    for place, source in links.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # of an attempt that was killed
        place.symlink_to(source)
    for name, data in placed_configs(config, included).items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # the commit's may be a link
            path.write_bytes(data)


def placed_configs(config: Path, included: Included) -> dict[str, bytes]:
    """The config and the files that it includes, by their paths in the workspace."""
    if not included.place:
        return {}
    copies = {name: text.encode() for name, text in included.copies.items() if name[:1] != "/"}
    return {included.place: config.read_bytes(), **copies}


def take_back(run: RunDir, folder: Path, recorded: Mapping[str, Any]) -> None:
    """Undo `place_files` in a workspace, except where the job wrote something else there."""
    config = run.path / str(recorded.get("input"))
    commit = CommitFiles(folder, str(recorded.get("commit")))
    for name, data in placed_configs(config, read_included(run.path)).items():
        path = folder / name
        if path.is_file() and path.read_bytes() == data:
            original = commit.read(name)
            if original is None:
                path.unlink()
            elif original != data:
                path.write_bytes(original)
    for source, names in read_inputs(run).items():
        for name in names:
            if is_link_to(folder / name, Path(source) / name):
                (folder / name).unlink()


def is_link_to(place: Path, target: Path) -> bool:
    """Whether a path is our link, which the job has not replaced or removed."""
    return place.is_symlink() and os.readlink(place) == str(target)


def save_inputs(run: RunDir, inputs: Inputs) -> None:
    """Record the inputs with a run; nothing where there are none."""
    if inputs:
        write_json(run.path / INPUTS_FILE, inputs)


def read_inputs(run: RunDir) -> Inputs:
    """The recorded inputs of a run."""
    path = run.path / INPUTS_FILE
    return run.read_json(path) if path.is_file() else {}
