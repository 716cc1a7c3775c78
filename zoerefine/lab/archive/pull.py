"""Copies an archive to a run directory.

Files are written into a folder beside it, every digest is verified, and then it is renamed: a pull
that was killed leaves no run. The next one keeps the files that are complete.
"""

import os
import shutil
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import create_ignored_folder, sync, sync_file_system
from zoerefine.base.files.file_lock import try_lock
from zoerefine.base.messages import say, visible
from zoerefine.base.run_dir import LARGEST_DOCUMENT, RunDir
from zoerefine.lab.archive.manifest import (
    MANIFEST,
    STUDY_PART,
    ArchivedFile,
    Manifest,
    read_manifest,
)
from zoerefine.lab.archive.push import OBJECTS, entries_below, is_run, is_study
from zoerefine.lab.archive.remote import (
    MB,
    Meter,
    NotThereError,
    Remote,
    Sum,
    file_blocks,
    has_digest,
    in_parallel,
    metered,
)

LISTED = 8  # archives that an error names


def pull(archive: Remote, runs: Path) -> Path:
    """Copy an archive into a runs folder; returns the run directory.

    Raises `UserError` where there is no archive, it is damaged, or another run is in its place or
    would contain it.
    """
    manifest = read_archive(archive)
    target = runs / manifest.name
    refuse_inside_run(runs, manifest.name)
    remove_links(beside(target))
    if os.path.lexists(target):
        require_equal(target, manifest, archive)
        remove_beside(target)
        return target
    create_ignored_folder(runs)
    create_folder(target.parent)
    with try_lock(beside(target) / ".lock") as descriptor:
        if descriptor is None:
            raise UserError(f"another process pulls {target}")
        folder = beside(target) / "run"
        remove_foreign(folder, manifest)
        require_room(folder, manifest)
        fetch(manifest, archive.inside(OBJECTS), folder)
        publish(folder, target)
    remove_beside(target)
    return target


def read_archive(archive: Remote) -> Manifest:
    """The manifest of an archive.

    Raises `UserError` where there is none, it is damaged, or its run has another name than it.
    """
    try:
        data = archive.read(MANIFEST, LARGEST_DOCUMENT)
    except NotThereError:
        raise no_archive(archive) from None
    manifest = read_manifest(data, f"{archive.url}/{MANIFEST}")
    if not archive.is_at(manifest.name):
        raise UserError(
            f"{archive.url} holds the run {visible(manifest.name)}: its address must end with that"
        )
    return manifest


def no_archive(archive: Remote) -> UserError:
    """The error for an address without a manifest, with the archives below it."""
    try:
        names = archive.folders()
    except NotThereError:
        return UserError(f"{archive.url} does not exist, or cannot be listed: check the address")
    more = ", ..." if len(names) > LISTED else ""
    below = f"; below it: {', '.join(names[:LISTED])}{more}" if names else ""
    return UserError(f"{archive.url} is not an archive of a run{below}")


def refuse_inside_run(runs: Path, name: str) -> None:
    """Raises `UserError` where a run would get into another one, unless that is its study."""
    parts = name.split("/")
    for count in range(1, len(parts)):
        above, inner = runs.joinpath(*parts[:count]), "/".join(parts[count:])
        if is_run(above) and not (STUDY_PART.fullmatch(inner) and is_study(RunDir(above))):
            raise UserError(
                f"{runs / name} would be a part of {above}, which is a run but not its study: give "
                "another --runs"
            )


def create_folder(folder: Path) -> None:
    """Create a folder that may exist. Raises `UserError` where it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be created: {error.strerror}") from None


def beside(target: Path) -> Path:
    """The folder for a run that is not complete. Its name is hidden, and it is not a run."""
    return target.with_name(f".{target.name}.pulling")


def remove_links(folder: Path) -> None:
    """Remove links that somebody else has put there: what they lead to is not ours to change."""
    for path in (folder, folder / ".lock", folder / "run"):
        if path.is_symlink():
            path.unlink()


def remove_beside(target: Path) -> None:
    """Remove that folder unless another process uses it."""
    if not beside(target).is_dir():
        return
    with try_lock(beside(target) / ".lock") as descriptor:
        if descriptor is not None:
            shutil.rmtree(beside(target), ignore_errors=True)


def require_equal(target: Path, manifest: Manifest, archive: Remote) -> None:
    """Raises `UserError` where a run differs from its archive."""
    for file in manifest.files:
        if not is_complete(target / file.path, file):
            raise UserError(
                f"{target} exists, and its {file.path} differs from {archive.url}: move the run "
                "away, or give another --runs"
            )
    say(f"{target} is there already, with the same {len(manifest.files)} files")


def is_complete(path: Path, file: ArchivedFile) -> bool:
    """Whether a regular file has the size and digest of the manifest."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.bytes:
        return False
    return has_digest(file_blocks(path), file.bytes, file.sha256)


def remove_foreign(folder: Path, manifest: Manifest) -> None:
    """Remove what an earlier pull left that is not of this manifest, or has another size."""
    create_folder(folder)
    sizes = {folder / file.path: file.bytes for file in manifest.files}
    for path in list(entries_below(folder)):
        if path.is_symlink() or not path.is_file() or path.stat().st_size != sizes.get(path):
            path.unlink()
    for inner in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        if not any(inner.iterdir()):
            inner.rmdir()


def require_room(folder: Path, manifest: Manifest) -> None:
    """Raises `UserError` where the disk cannot hold what is still missing."""
    needed = sum(file.bytes for file in manifest.files if not (folder / file.path).exists())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{manifest.name} needs {needed / MB:.0f} MB, and {folder.parent.parent} has "
            f"{free / MB:.0f} MB free: make room, or give another --runs"
        )


def fetch(manifest: Manifest, objects: Remote, folder: Path) -> None:
    """Write every file that is missing or differs. Raises `UserError` for a damaged archive."""
    total_bytes = sum(file.bytes for file in manifest.files)
    with metered(total_bytes, f"pulling {manifest.name}") as meter:
        jobs = (partial(fetch_file, file, objects, folder, meter) for file in manifest.files)
        in_parallel(jobs, meter)


def fetch_file(file: ArchivedFile, objects: Remote, folder: Path, meter: Meter) -> None:
    """Write one file with the times of the manifest. Raises `UserError` where it is damaged."""
    path = folder / file.path
    if is_complete(path, file):
        meter.count(file.bytes)
    else:
        download(file, objects, path, meter)
    if file.executable:
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    os.utime(path, ns=(file.modified_ns, file.modified_ns))


def download(file: ArchivedFile, objects: Remote, path: Path, meter: Meter) -> None:
    """Write one file. No more than the stated size is written."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    found = Sum()
    blocks = found.passing(objects.blocks(file.sha256), file.bytes)
    with open(path, "xb") as target, suppress(NotThereError):
        for block in meter.counted(blocks):
            target.write(block)
    if not found.agrees(file.bytes, file.sha256):
        path.unlink()
        raise UserError(
            f"{objects.url}/{file.sha256} is missing or damaged: it should be {file.path}; push "
            "the run again where it is whole"
        )


def publish(folder: Path, target: Path) -> None:
    """Rename a complete run to its place."""
    sync_file_system(folder)
    try:
        os.rename(folder, target)
    except OSError as error:
        raise UserError(f"{target} cannot be made: {error.strerror}") from None
    sync(target.parent)
