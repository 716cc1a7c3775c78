"""Files that are written whole or not at all, read without waiting, and digests of contents."""

import ctypes
import hashlib
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; on success it is flushed and renamed onto `path`.

    A kill at any moment leaves either the old file or the new one. An exception removes the
    half-written file; an `OSError` names `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{short_name(path)}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a full disk is reported without a name
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # read-only storage says so before it looks for the file
            temporary.unlink()


def short_name(path: Path) -> str:
    """A file's name; if it is too long for a longer one beside it, a digest with its suffix."""
    name = os.fsencode(path.name)
    if len(name) <= LONGEST_NAME - len("..xxxxxxxx.tmp"):
        return path.name
    return hashlib.sha256(name).hexdigest()[:16] + path.suffix[-16:]


LONGEST_NAME = 255  # bytes, on nearly all file systems of Linux
HALF_WRITTEN = ".*.????????.tmp"  # a glob of the names that `replacing` gives


def remove_half_written(paths: Iterable[Path], names: str) -> None:
    """Remove the temporary files that `replacing` left when it was killed.

    Args:
        paths: where they may be, such as what a folder's glob of HALF_WRITTEN finds.
        names: a regular expression of the names of the files that were being written.
    """
    temporary = re.compile(rf"\.(?:{names})\.[0-9a-f]{{8}}\.tmp")
    for path in paths:
        if temporary.fullmatch(path.name):
            path.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; on success it is flushed and renamed to `path`,
    replacing what is there."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        sync_file_system(temporary)
        old = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old")
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
        sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def create_ignored_folder(path: Path) -> None:
    """Create a folder for outputs inside a user's repository: git ignores what is in it.

    A folder that exists already is left as it is. Raises `UserError` where it cannot be created.
    """
    ignored = path / ".gitignore"
    try:
        path.mkdir(parents=True)
        ignored.write_text("*\n")  # a temporary file would be left in it by a kill
    except FileExistsError:
        return
    except OSError as error:
        with suppress(OSError):
            ignored.unlink(missing_ok=True)
            path.rmdir()
        raise UserError(f"{path} cannot be created: {error.strerror}") from None


@contextmanager
def removing_new_folders(path: Path, *files: str) -> Iterator[None]:
    """Where the block raises `UserError`, remove a folder and its parents, if they are new.

    Args:
        files: names of files that go with them. A folder that holds anything else stays.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except UserError:
        for folder in new:
            with suppress(OSError):  # it was not made, or another process uses it
                if set(os.listdir(folder)) <= set(files):
                    for name in files:
                        (folder / name).unlink(missing_ok=True)
                folder.rmdir()
        raise


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text; a reader sees the whole old file or the whole new one."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write an indented JSON document; a reader sees the whole old file or the whole new one."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def sync(path: Path) -> None:
    """Force a file's bytes, or the renames inside a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(path: Path) -> None:
    """Force all that was written to the file system of a path to the disk.

    For many files this is faster than a call for each.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)


def bytes_on_disk(folder: str | Path) -> int:
    """The size on disk of a folder's files. Links are not followed.

    What is removed meanwhile, or may not be read, does not count.
    """
    total, folders = 0, [os.fspath(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def at_once(path: str, flags: int) -> int:
    """An opener for `open` that does not wait for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_regular_file(path: str | Path, max_bytes: int) -> bytes:
    """The bytes of a regular file of a limited size. A pipe is not waited for.

    Raises `OSError` where it cannot be opened, and `UserError` for another kind of file or a larger
    one: of the file that is read, whatever another program puts in its place meanwhile.
    """
    with open(path, "rb", opener=at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is not a regular file")
        if status.st_size > max_bytes:
            raise UserError(f"{path} has {status.st_size} bytes; up to {max_bytes} are read")
        return file.read(status.st_size)


def read_given_file(path: str | Path, max_bytes: int) -> bytes:
    """The bytes of a file that a user names, or of a pipe that the shell opened: `<(command)`.

    Raises `OSError` where it cannot be opened, and `UserError` for a larger one, for a pipe in a
    folder, which may never have a writer, and for a pipe that gives nothing: it was read before.
    """
    with open(path, "rb", opener=at_once) as file:
        status = os.fstat(file.fileno())
        is_pipe = stat.S_ISFIFO(status.st_mode)
        # That of a shell is a link to `pipe:[4711]`, which is in no folder.
        if is_pipe and os.path.exists(os.path.realpath(path)):
            raise UserError(f"{path} is a pipe: give a file")
        os.set_blocking(file.fileno(), True)
        if status.st_size > max_bytes:
            raise UserError(f"{path} has {status.st_size} bytes; up to {max_bytes} are read")
        data = file.read() if stat.S_ISREG(status.st_mode) else file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise UserError(f"{path} has more than {max_bytes} bytes")
    if is_pipe and not data:
        raise UserError(f"{path} is a pipe that gives nothing: give a file")
    return data


def digest_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hex. Raises `UserError` for a pipe, which is not waited for."""
    with open(path, "rb", opener=at_once) as file:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise UserError(f"{path} is not a regular file")
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_files(folder: Path, files: Iterable[Path]) -> str:
    """SHA-256 of several files, by their paths in a folder and their bytes."""
    return digest_json({str(path.relative_to(folder)): digest_file(path) for path in files})


def digest_json(value: Any) -> str:
    """SHA-256 of a JSON value in canonical form (sorted keys, no spaces), in hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_pairs(
    folder: Path, names: Sequence[str], what: str, suffixes: Sequence[str] = (".png",)
) -> None:
    """Raises `UserError` if a folder has a file for none of the names (if any are known)."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder} with {what}")
    files = ([folder / f"{name}{suffix}" for suffix in suffixes] for name in names)
    if names and not any(path.exists() for paths in files for path in paths):
        first = " or ".join(str(folder / f"{names[0]}{suffix}") for suffix in suffixes)
        raise UserError(
            f"{folder} has no {what} for any of {len(names)} pictures: the names must be the same, "
            f"the first would be {first}"
        )
