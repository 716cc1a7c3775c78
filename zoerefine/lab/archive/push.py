"""Copies a run to an archive.

What is there already is known by reading it: an object of the right name and size is read back and
its digest compared, and only a missing or damaged one is sent. Every object that was sent is read
back, too. The manifest comes last, so a push that was killed leaves the earlier archive, or none.

The end of this file finds a run on this machine, and makes the manifest of its files.
"""

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file
from zoerefine.base.files.file_lock import is_locked
from zoerefine.base.messages import counted, say, visible, warn
from zoerefine.base.run_dir import LARGEST_DOCUMENT, NODE_FOLDER, RunDir
from zoerefine.base.secrets import holds_password
from zoerefine.lab.archive.manifest import (
    MANIFEST,
    ArchivedFile,
    DamagedManifestError,
    Manifest,
    decode,
    name_fault,
    read_manifest,
)
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

OBJECTS = "objects"


def push(run: RunDir, remote: Remote) -> str:
    """Copy a run to a folder of archives; returns the archive's address.

    Raises `UserError` where the run is running or changes, the archive holds another run or is
    changed by another process, or the store fails. The same command then goes on.
    """
    manifest = describe(run)
    archive = place_of(manifest, remote)
    old = archived(archive)
    if old is not None and not is_of_one_run(old, manifest):
        raise UserError(f"{archive.url} holds another run of this name: give another folder")
    sent = send_objects(run.path, manifest, archive.inside(OBJECTS))
    refuse_running(run)
    replace_manifest(old, manifest, archive)
    if old is not None and (unused := old.objects.keys() - manifest.objects.keys()):
        require_whole(archive, manifest)
        remove_objects(unused, archive.inside(OBJECTS))
    require_whole(archive, manifest)
    report(manifest, sent)
    kept = {file.path for file in manifest.files}
    if gone := [file.path for file in (old.files if old else ()) if file.path not in kept]:
        count = counted(len(gone), "file")
        warn(visible(f"the archive lost {count} that the run no longer has, such as {gone[0]}"))
    return archive.url


def is_of_one_run(old: Manifest, later: Manifest) -> bool:
    """Whether two archives are of one run at two times: what had ended before has ended so."""
    known = later.identity.keys() | {"ended"}
    same = (later.identity.get(k) == v for k, v in old.identity.items() if k in known)
    return old.name == later.name and all(same)


def place_of(manifest: Manifest, remote: Remote) -> Remote:
    """A run's place in a folder of archives. Raises `UserError` where `pull` would refuse it."""
    archive = remote.inside(manifest.name)
    if holds_password(archive.url):
        raise UserError(
            f"{manifest.name} cannot be archived by its name: with it, the address looks as if it "
            "held a password"
        )
    return archive


def archived(archive: Remote) -> Manifest | None:
    """The manifest of an archive; None where there is no archive.

    Raises `UserError` where something else is in its place.
    """
    try:
        data = archive.read(MANIFEST, LARGEST_DOCUMENT)
    except NotThereError:
        return None
    try:
        return read_manifest(data, f"{archive.url}/{MANIFEST}")
    except UserError as error:
        raise UserError(f"{error}; remove it, or give another folder") from None


def replace_manifest(old: Manifest | None, manifest: Manifest, archive: Remote) -> None:
    """Put our manifest in the place of the old one.

    Raises `UserError` where another push has replaced the old one: it may have removed objects that
    we had found.
    """
    now = archived(archive)
    if now not in (old, manifest):
        raise interfered(archive)
    if now != manifest:
        archive.replace(MANIFEST, manifest.encoded())


def require_whole(archive: Remote, manifest: Manifest) -> None:
    """Raises `UserError` where another push has replaced our manifest or removed our objects.

    Object stores have no locks. Each push therefore looks once more after its last change, so that
    of several pushes at least the last one to change the archive sees whether it is whole.
    """
    sizes = archive.inside(OBJECTS).sizes()
    complete = all(sizes.get(file.sha256) == file.bytes for file in manifest.objects.values())
    if not complete or archived(archive) != manifest:
        raise interfered(archive)


def interfered(archive: Remote) -> UserError:
    """The error for an archive that another process changes."""
    return UserError(
        f"{archive.url} was changed by another process meanwhile: run the same command again"
    )


def send_objects(folder: Path, manifest: Manifest, objects: Remote) -> int:
    """Send the contents that the archive does not have, and verify all; returns the bytes sent."""
    sizes = objects.sizes()
    files = list(manifest.objects.values())
    there = {file for file in files if sizes.get(file.sha256) == file.bytes}
    total_bytes = sum(2 * file.bytes for file in files) - sum(file.bytes for file in there)
    sent: list[int] = []

    def copy(file: ArchivedFile, meter: Meter) -> None:
        if file in there and is_intact(file, objects, meter):
            return
        send(folder / file.path, file, objects, meter)
        sent.append(file.bytes)

    with metered(total_bytes, f"pushing {manifest.name}") as meter:
        in_parallel((partial(copy, file, meter) for file in files), meter)
    return sum(sent)


def send(path: Path, file: ArchivedFile, objects: Remote, meter: Meter) -> None:
    """Send one file and read it back. Raises `UserError` where either differs from its digest."""
    found = Sum()
    objects.write(file.sha256, meter.counted(found.passing(file_blocks(path), file.bytes)))
    if not found.agrees(file.bytes, file.sha256):
        raise changed(path)
    if not is_intact(file, objects, meter):
        raise UserError(
            f"{objects.url}/{file.sha256} differs from {path} after it was sent: run the same "
            "command again"
        )


def is_intact(file: ArchivedFile, objects: Remote, meter: Meter) -> bool:
    """Whether an object has the content that its name says. It may be removed meanwhile."""
    try:
        return has_digest(meter.counted(objects.blocks(file.sha256)), file.bytes, file.sha256)
    except NotThereError:
        return False


def remove_objects(digests: set[str], objects: Remote) -> None:
    """Remove what only the replaced manifest needed."""
    for digest in sorted(digests):
        try:
            objects.remove(digest)
        except NotThereError:
            continue
        except UserError as error:
            warn(f"no longer needed, but not removed: {error}")


def report(manifest: Manifest, sent_bytes: int) -> None:
    """Say what was sent, and what is not archived."""
    total_bytes = sum(file.bytes for file in manifest.objects.values())
    say(
        f"{manifest.name}: {len(manifest.files)} files, {total_bytes / MB:.1f} MB verified, "
        f"{sent_bytes / MB:.1f} MB sent"
    )
    if manifest.left_out:
        first = visible(manifest.left_out[0])
        warn(f"{len(manifest.left_out)} links or special files are not archived, such as {first}")


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
    return "study_id" in run.recorded()


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
    recorded = run.recorded()
    identity = {key: str(recorded[key]) for key in IDENTITY if recorded.get(key)}
    status = run.status()
    if status.state == "finished" and "study_id" not in recorded:  # a study goes on after its end
        identity["ended"] = str(status.ended)
    made = Manifest(archive_name(run.path), status.state, identity, tuple(files), tuple(left_out))
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
