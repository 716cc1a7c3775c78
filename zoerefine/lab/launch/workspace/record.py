"""What a fresh workspace holds: its record, and how the files differ from it later.

The record does not depend on the workspace's own repository: a job can change that so that git
hides other changes. The repository's files are recorded, too. A file whose type, size, times and
inode are as recorded is not read again; the system, not the user, sets a file's ctime. Files are
found without following a link.
"""

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from zoerefine.base.files.atomic import HALF_WRITTEN, digest_file, remove_half_written, replacing

SCHEMA = 1
# A file that changes twice within one tick of the system's clock keeps its ctime. File systems
# without fractions of a second have a tick of up to two seconds.
TICK_NS, COARSE_TICK_NS = 20_000_000, 2_000_000_000
UNKNOWN = -1  # an inode that no file has: the file is read again
INDEX = ".git/index"  # git writes it again when a job asks for the state of the files
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
            elif not (entry.is_symlink() or entry.is_file(follow_symlinks=False)):  # a pipe
                found.others.append(name)
            else:
                made = name.endswith(BYTECODE_SUFFIX) or f"/{BYTECODE_FOLDER}/" in f"/{name}"
                kind = found.bytecode if made else found.files
                with suppress(FileNotFoundError):
                    kind[name] = entry.stat(follow_symlinks=False)
    found.folders = waiting[1:]
    return found


def remove_empty_folders(folder: Path, found: Contents) -> None:
    """Remove folders in which no file is left, with pipes and sockets; `folder` itself stays.

    A commit has no empty folders, so a job made them. Repositories keep theirs.

    Args:
        found: what is in the folder.
    """
    kept = repositories(found.files)
    for name in (*found.others, *reversed(found.folders)):
        path = folder / name
        if not f"{name}/".startswith(kept):
            with suppress(OSError):  # it is not empty
                path.rmdir() if path.is_dir() else path.unlink()


def repositories(names: Iterable[str]) -> tuple[str, ...]:
    """The folders of a workspace's own repository and its submodules', each with a slash.

    Args:
        names: the paths of its files.
    """
    heads = (name for name in names if f"/{name}".endswith("/.git/HEAD"))
    return tuple(name.removesuffix("HEAD") for name in heads)


@dataclass(frozen=True)
class FileRecord:
    """A file or link: `kind` is file, program or link; the digest of a link is of its target."""

    kind: str
    digest: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        """What changes with the file's content."""
        return self.mtime_ns, self.ctime_ns, self.inode


@dataclass(frozen=True)
class WorkspaceRecord:
    """What a fresh workspace holds.

    Attributes:
        commit: 40 hex digits.
        changes: the digest of the applied changes; empty without any.
        files: every file and link by its path, those of its repositories included.
    """

    commit: str
    changes: str
    files: Mapping[str, FileRecord]


def record_file(folder: Path) -> Path:
    """Where a workspace's record is."""
    return folder.parents[2] / "records" / folder.parent.name / f"{folder.name}.json"


def make_record(
    folder: Path, commit: str, changes: str, digests: Mapping[str, str]
) -> WorkspaceRecord:
    """The record of a fresh workspace.

    Args:
        digests: SHA-256 of its committed files, which are known already.
    """
    found = scan(folder)
    files = {
        name: describe(facts, digests.get(name) or digest_content(folder / name))
        for name, facts in (found.files | found.bytecode).items()
    }
    return WorkspaceRecord(commit, changes, files)


def describe(facts: os.stat_result, digest: str) -> FileRecord:
    """A file's row. What may still change without another ctime is read again at the next use."""
    tick_ns = TICK_NS if facts.st_ctime_ns % 1_000_000_000 else COARSE_TICK_NS
    settled = facts.st_ctime_ns < time.time_ns() - tick_ns
    times = (facts.st_mtime_ns, facts.st_ctime_ns)
    inode = facts.st_ino if settled else UNKNOWN
    return FileRecord(kind_of(facts), digest, facts.st_size, *times, inode)


def kind_of(facts: os.stat_result) -> str:
    """`link`, `program` or `file`, which are what git tells apart, or `other`."""
    if stat.S_ISLNK(facts.st_mode):
        return "link"
    if not stat.S_ISREG(facts.st_mode):
        return "other"
    return "program" if facts.st_mode & stat.S_IXUSR else "file"


def digest_content(path: Path) -> str:
    """SHA-256 of a file's bytes, or of the name that a link leads to."""
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
    return digest_file(path)


def write_record(folder: Path, record: WorkspaceRecord) -> None:
    """Write a workspace's record."""
    rows = {name: list(vars(one).values()) for name, one in record.files.items()}
    value = {"schema": SCHEMA, "commit": record.commit, "changes": record.changes, "files": rows}
    with replacing(record_file(folder)) as path:
        # Names that are not valid UTF-8 are escaped.
        path.write_text(json.dumps(value, separators=(",", ":")), encoding="ascii")


def remove_record(folder: Path) -> None:
    """Remove a workspace's record, and what a kill left of it. The caller holds its lock."""
    path = record_file(folder)
    path.unlink(missing_ok=True)
    remove_half_written(path.parent.glob(HALF_WRITTEN), re.escape(path.name))


def read_record(folder: Path) -> WorkspaceRecord | None:
    """A workspace's record; None where there is none that can be read."""
    try:
        value = json.loads(record_file(folder).read_bytes())
        files = {name: FileRecord(*row) for name, row in value["files"].items()}
        return WorkspaceRecord(value["commit"], value["changes"], files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True)
class Differences:
    """How a workspace differs from its record.

    Attributes:
        new: files that are not recorded, those of Python's bytecode left out.
        changed: recorded files with another content or type, or none.
        indexes: changed indexes of the workspace's repositories.
        touched: recorded files with the same content and other times, as they are now.
        contents: what is in the workspace.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    indexes: tuple[str, ...]
    touched: Mapping[str, FileRecord]
    contents: Contents


@dataclass(frozen=True)
class LeftFiles:
    """What a job left in a workspace.

    Attributes:
        names: paths of new and changed files, symbolic links among them; relative, sorted.
        spoiled: whether recorded files were changed or deleted, or are to be moved to the run, so
            that no other run can use the workspace.
        committed: of logs that the job changed, the commit's bytes and SHA-256.
    """

    names: tuple[str, ...]
    spoiled: bool
    committed: Mapping[str, tuple[int, str]] = field(default_factory=dict)


# Of files that may hold metrics. One that the commit has counts as the job's also where the job
# wrote the same bytes, and is its own only from where it differs.
LOG_SUFFIXES = {".csv", ".tsv", ".json", ".jsonl"}


def left_files(folder: Path) -> LeftFiles:
    """What a job left in a workspace.

    Files that git ignores count, and files that the job committed; Python's bytecode, pipes and
    sockets do not. Without a record all files count.
    """
    record = read_record(folder)
    if record is None:
        names = sorted(name for name in scan(folder).files if not name.startswith(".git/"))
        return LeftFiles(tuple(names), spoiled=True)
    found = compare(folder, record)
    own = set(in_repositories(record, [*found.new, *found.changed]))
    kept = [name for name in found.changed if name in found.contents.files]
    again = [
        name
        for name, facts in found.touched.items()
        if is_log(name) and facts.mtime_ns != record.files[name].mtime_ns
    ]
    names = sorted({*found.new, *kept, *again} - own)
    logs = {name: record.files[name] for name in kept if is_log(name)}
    committed = {name: (known.size, known.digest) for name, known in logs.items()}
    return LeftFiles(tuple(names), bool(found.changed or own or again), committed)


def is_log(name: str) -> bool:
    """Whether a file may hold metrics, by its name."""
    return Path(name).suffix.lower() in LOG_SUFFIXES


def compare(folder: Path, record: WorkspaceRecord) -> Differences:
    """How a workspace differs from its record. Reads what changed by size, times or inode."""
    found = scan(folder)
    committed = found.bytecode.keys() & record.files.keys()
    files = found.files | {name: found.bytecode[name] for name in committed}
    changed: list[str] = []
    touched: dict[str, FileRecord] = {}
    for name, known in record.files.items():
        facts = files.get(name)
        if facts is None or kind_of(facts) != known.kind or facts.st_size != known.size:
            changed.append(name)
        elif (facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino) != known.stamp:
            if has_digest(folder / name, known.digest):
                touched[name] = describe(facts, known.digest)
            else:
                changed.append(name)
    new = tuple(sorted(files.keys() - record.files.keys()))
    # Git writes a repository's index again by itself.
    indexes = tuple(name for name in changed if f"/{name}".endswith(f"/{INDEX}"))
    others = tuple(sorted(set(changed).difference(indexes)))
    return Differences(new, others, indexes, touched, found)


def has_digest(path: Path, digest: str) -> bool:
    """Whether a file can be read and has this digest."""
    try:
        return digest_content(path) == digest
    except OSError:
        return False


def in_repositories(record: WorkspaceRecord, names: Iterable[str]) -> list[str]:
    """Those of some paths that are inside one of the workspace's repositories."""
    places = repositories(record.files)
    return [name for name in names if name.startswith(places)]
