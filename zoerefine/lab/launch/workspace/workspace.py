"""Workspaces: the files of one commit, verified, and used by one run at a time.

    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>          the files
    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>.lock     held by the run that uses it
    <home>/workspaces/<mirror>/<commit>[-<changes>].<n>.run      the run that used it last
    <home>/records/<mirror>/<commit>[-<changes>].<n>.json        what a fresh one holds

A workspace is a clone that borrows the mirror's objects, so it takes only the disk space of its
files. It is made in a temporary folder, verified, and renamed. A later run gets a free workspace
whose files are still exactly the commit's. Files that a job left are never given to another run:
they are collected into its own run (`left.py`).

A launch places in it the job's config, where that works at its own place alone, files that the
config includes, and links to the files of --input. They are taken back when the job has ended.

    <run>/inputs.json  the folders of --input, with the SHA-256 of every file
"""

import errno
import itertools
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file
from zoerefine.base.files.file_lock import try_lock
from zoerefine.base.messages import warn
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.git.address import RepositoryAddress
from zoerefine.lab.launch.git.changes import Changes
from zoerefine.lab.launch.git.commands import ISOLATED, git
from zoerefine.lab.launch.included import CommitFiles, Included, read_included
from zoerefine.lab.launch.workspace.checkout import apply, check_out, verify
from zoerefine.lab.launch.workspace.record import (
    INDEX,
    FileRecord,
    compare,
    describe,
    digest_content,
    in_repositories,
    make_record,
    read_record,
    remove_empty_folders,
    remove_record,
    scan,
    write_record,
)


@dataclass(frozen=True)
class Workspace:
    """A workspace that this launch holds: its folder, and the descriptor of its lock."""

    folder: Path
    lock_fd: int


def workspaces_folder(home: Path) -> Path:
    """The folder of all workspaces."""
    return home / "workspaces"


@contextmanager
def workspace(
    address: RepositoryAddress, mirror: Path, commit: str, changes: Changes, home: Path, run: Path
) -> Iterator[Workspace]:
    """Hold a workspace with the commit's files and the changes applied, for one run.

    A run that resumes gets its former workspace back, with the files that it left there. Another
    run gets a free one, or a new one.
    """
    label = commit + (f"-{changes.digest[:12]}" if changes.patch else "")
    base = workspaces_folder(home) / mirror.stem / label
    for folder in possible_folders(base, run):
        with try_lock(Path(f"{folder}.lock")) as lock_fd:
            if lock_fd is None:
                continue
            if not folder.exists():
                make(folder, address, mirror, commit, changes, home, lock_fd)
            elif not prepare(folder, commit, changes, last_run(folder) == str(run)):
                continue
            marker = Path(f"{folder}.run")
            marker.write_text(f"{run}\n", encoding="utf-8", errors="surrogateescape")
            os.utime(folder)  # --clean reads the time of the last use here
            yield Workspace(folder, lock_fd)
            return


def possible_folders(base: Path, run: Path) -> Iterator[Path]:
    """Where a run could work: first the folders that it used before, then all by number."""
    for marker in sorted(base.parent.glob(f"{base.name}.*.run")):
        folder = marker.with_suffix("")
        if folder.exists() and last_run(folder) == str(run):
            yield folder
    for number in itertools.count():
        yield base.with_name(f"{base.name}.{number}")


def last_run(folder: Path) -> str:
    """The run that used a workspace last; empty where there was none."""
    try:
        text = Path(f"{folder}.run").read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    return text.partition("\n")[0]


def delete_folder(folder: Path) -> None:
    """Delete a workspace or another folder of its kind. The caller holds its lock.

    It is renamed first, so that a kill in the middle leaves nothing that looks complete.
    """
    doomed = folder.with_name(f".{folder.name}.removed.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def delete_workspace(folder: Path) -> None:
    """Delete a workspace with its record. The caller holds its lock."""
    delete_folder(folder)
    Path(f"{folder}.run").unlink(missing_ok=True)
    remove_record(folder)


def make(
    folder: Path,
    address: RepositoryAddress,
    mirror: Path,
    commit: str,
    changes: Changes,
    home: Path,
    lock_fd: int,
) -> None:
    """Check out into a temporary folder, verify it, and rename it. The caller holds its lock."""
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):  # of killed launches
        shutil.rmtree(leftover, ignore_errors=True)
    remove_record(folder)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        check_out(temporary, address, mirror, commit, home, lock_fd)
        if changes.patch:
            apply(temporary, changes)
        try:
            digests = verify(temporary, commit, changes)
        except UserError as error:
            raise UserError(
                f"a fresh checkout of {commit[:12]} differs from the commit: {error}; the mirror "
                f"{mirror} may be damaged: delete it and try again"
            ) from None
        write_record(folder, make_record(temporary, commit, changes.digest, digests))
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def prepare(folder: Path, commit: str, changes: Changes, same_run: bool) -> bool:
    """Make an existing workspace ready for a run; False where its files are not as recorded.

    Python's bytecode is removed, since Python does not compare it with the source's content. A
    changed index is made again: git writes it when a job asks for the state of the files.

    Args:
        same_run: the run used the workspace last, so new files are its own and stay.
    """
    record = read_record(folder)
    if record is None or folder.is_symlink():
        return False
    if (record.commit, record.changes) != (commit, changes.digest):
        return False
    found = compare(folder, record)
    in_git = in_repositories(record, found.new)
    if found.changed or in_git or (found.new and not same_run):
        return False
    try:
        made = {*found.contents.bytecode, *found.contents.others}.difference(record.files)
        for name in made:
            (folder / name).unlink()
        remove_empty_folders(folder, found.contents)
        rows = {name: remade_index(folder, name, changes) for name in found.indexes}
    except (OSError, UserError):
        return False
    if found.touched or rows:
        files = {**record.files, **found.touched, **rows}
        write_record(folder, replace(record, files=files))
    return True


def remade_index(folder: Path, name: str, changes: Changes) -> FileRecord:
    """Make a repository's index again; returns its row for the record."""
    path = folder / name
    path.unlink(missing_ok=True)
    tree = changes.tree if name == INDEX and changes.tree else "HEAD"
    git("read-tree", tree, folder=path.parents[1], env=ISOLATED)
    return describe(path.lstat(), digest_content(path))


# What a launch places in a workspace.

INPUTS_FILE = "inputs.json"
Inputs = Mapping[str, Mapping[str, str]]  # SHA-256 of files by their paths, by folder


def digest_inputs(folders: Iterable[Path], repository: Path | None) -> Inputs:
    """The files of some folders, by the folder that becomes the workspace.

    What a run's job left lies where the job wrote it, a folder of the repository at its own path,
    and another folder by its name.

    Raises `UserError` where there is no such folder or no file in it, one cannot be read or is a
    link to a folder, two folders have a file for one path, or a run has not ended.
    """
    found: dict[str, dict[str, str]] = {}
    for given in folders:
        warn_of_unfinished(RunDir(given))
        folder = RunDir(given).left if RunDir(given).left_file.is_file() else given
        if not folder.is_dir():
            raise UserError(f"--input {given} is not a folder, nor a run that left files")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise UserError(f"--input: {folder} cannot be read: {os.strerror(errno.EACCES)}")
        folder = folder.resolve()
        root = folder if folder.name == "left" and folder.parent == given.resolve() else None
        if root is None:
            own = repository is not None and folder.is_relative_to(repository)
            root = repository if own and repository is not None else folder.parent
        digests = dict(digest_folder(folder, root))
        if not digests:
            raise UserError(f"--input {given} has no files: is it the right folder, and mounted?")
        found.setdefault(str(root), {}).update(digests)
    refuse_same_paths(found)
    return found


def warn_of_unfinished(run: RunDir) -> None:
    """Warn of the files of a run that did not finish. Raises `UserError` for one that is running:
    its job's files are collected when it ends.
    """
    if not run.provenance_file.is_file():
        return
    status = run.status()
    if status.state == "running":
        raise UserError(f"--input {run.path} is running: its files are there when it has ended")
    if status.state != "finished":
        warn(f"--input {run.path} is {status.state}: its files may not be all that its job writes")


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
    for name in sorted(scan(folder).files):
        path = folder / name
        if path.is_dir():
            raise UserError(f"--input: {path} is a link to a folder: copy that folder to its place")
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


def read_inputs(run: RunDir) -> Inputs:
    """The recorded inputs of a run. Raises `UserError` where they are damaged."""
    path = run.path / INPUTS_FILE
    inputs = run.document(path)
    if not all(isinstance(files, dict) for files in inputs.values()):
        raise UserError(f"{path} is damaged: a folder in it has no mapping of files")
    return inputs
