"""A run on this machine: its name in an archive, and the manifest of its files."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file
from zoerefine.base.files.locks import is_locked
from zoerefine.base.run_dir import NODE_FOLDER, RunDir
from zoerefine.base.texts import visible
from zoerefine.lab.archive.manifest import (
    ArchivedFile,
    DamagedManifestError,
    Manifest,
    decode,
    name_fault,
)

STUDY_FILES = ("study.db", "study.yaml")  # a study has one of them, or a study_id
RUN_FILES = ("provenance.json", "config.yaml", *STUDY_FILES)  # a run has one of them
WRITERS_LOCKS = {".lock", ".study.lock"}
IDENTITY = ("commit", "identity", "config_digest", "study_id")


def find_run(path: str) -> RunDir:
    """The run at a path or link. Raises `UserError` where there is none."""
    folder = Path(path).resolve()
    if not is_run(folder):
        raise UserError(f"{path} is not a run: it has neither provenance.json nor config.yaml")
    if NODE_FOLDER.fullmatch(folder.name):
        raise UserError(f"{path} is a part of a run: give {folder.parent}")
    name = archive_name(folder)
    if fault := name_fault(name):
        raise UserError(f"{path} cannot be archived by its name {name}: {fault}")
    return RunDir(folder)


def is_run(folder: Path) -> bool:
    """Whether a folder is a run or a study."""
    return any((folder / name).exists() for name in RUN_FILES)


def is_study(run: RunDir) -> bool:
    """Whether a run is a study. Raises `UserError` where its provenance is damaged."""
    if any((run.path / name).exists() for name in STUDY_FILES):
        return True
    return "study_id" in recorded_facts(run)


def recorded_facts(run: RunDir) -> dict[str, Any]:
    """A run's provenance; empty where it has none. Raises `UserError` where it is damaged."""
    return run.read_json(run.provenance_file) if run.provenance_file.exists() else {}


def archive_name(folder: Path) -> str:
    """A run's path in its runs folder: NAME/ID, or NAME/ID/trials/3 and NAME/ID/best in a study."""
    whole = folder
    if folder.parent.name == "trials" and is_run(folder.parent.parent):
        whole = folder.parent.parent
    elif (folder.parent / "trials").is_dir() and is_run(folder.parent):
        whole = folder.parent
    return folder.relative_to(whole.parent.parent).as_posix()


def describe(run: RunDir) -> Manifest:
    """The manifest of a run, with the digests of all its files.

    Raises `UserError` where the run or a trial of it is being written, a file changes meanwhile, or
    `pull` would refuse the manifest.
    """
    refuse_running(run)
    try:
        files, left_out = describe_files(run.path)
    except FileNotFoundError as error:
        raise changed(error.filename) from None
    recorded = recorded_facts(run)
    identity = {key: str(recorded[key]) for key in IDENTITY if recorded.get(key)}
    state = run.status().state
    made = Manifest(archive_name(run.path), state, identity, tuple(files), tuple(left_out))
    try:
        return decode(made.encoded())
    except DamagedManifestError as error:
        raise UserError(f"{run.path} cannot be archived, pull would refuse it: {error}") from None


def describe_files(folder: Path) -> tuple[list[ArchivedFile], list[str]]:
    """The rows of all regular files, and the paths of links and special files."""
    files, left_out = [], []
    for path in sorted(entries_below(folder)):
        if is_regular(path):
            files.append(describe_file(folder, path))
        else:
            left_out.append(path.relative_to(folder).as_posix())
    return files, left_out


def refuse_running(run: RunDir) -> None:
    """Raises `UserError` where a process writes the run, or a run inside it."""
    for path in entries_below(run.path):
        if path.name in WRITERS_LOCKS and is_regular(path) and is_locked(path):
            raise UserError(f"{path.parent} is running: archive it when it has ended")


def entries_below(folder: Path) -> Iterator[Path]:
    """Everything below a folder but folders. Links are not followed."""
    folders = [folder]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            else:
                yield Path(entry.path)


def is_regular(path: Path) -> bool:
    """Whether a path is a file, and neither a link nor special."""
    return stat.S_ISREG(os.lstat(path).st_mode)


def describe_file(folder: Path, path: Path) -> ArchivedFile:
    """A file's row in the manifest. Raises `UserError` where it is being written."""
    before = os.lstat(path)
    digest = digest_file(path)
    after = os.lstat(path)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise changed(path)
    name = path.relative_to(folder).as_posix()
    executable = bool(before.st_mode & stat.S_IXUSR)
    return ArchivedFile(name, before.st_size, digest, before.st_mtime_ns, executable)


def changed(path: str | Path) -> UserError:
    """The error for a file that a process changes."""
    line = f"{path} changed while it was read: archive the run when it has ended"
    return UserError(visible(line))
