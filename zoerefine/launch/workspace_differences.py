"""How the files of a workspace differ from its record, and what of it a job left."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from zoerefine.launch.workspace_files import Contents, files_below, scan
from zoerefine.launch.workspace_record import (
    INDEX,
    FileRecord,
    WorkspaceRecord,
    describe,
    digest_content,
    kind_of,
    read_record,
)


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
        spoiled: whether recorded files were changed or deleted, so that no other run can use the
            workspace.
    """

    names: tuple[str, ...]
    spoiled: bool


def left_files(folder: Path) -> LeftFiles:
    """What a job left in a workspace.

    Files that git ignores count, and files that the job committed; Python's bytecode, pipes and
    sockets do not. Without a record all files count.
    """
    record = read_record(folder)
    if record is None:
        return LeftFiles(tuple(sorted(files_below(folder, {".git"}))), spoiled=True)
    found = compare(folder, record)
    own = set(in_repositories(record, [*found.new, *found.changed]))
    kept = [name for name in found.changed if name in found.contents.files]
    names = sorted({*found.new, *kept} - own)
    return LeftFiles(tuple(names), spoiled=bool(found.changed or own))


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
    indexes = tuple(filter(is_index, changed))
    others = tuple(sorted(set(changed).difference(indexes)))
    return Differences(new, others, indexes, touched, found)


def has_digest(path: Path, digest: str) -> bool:
    """Whether a file can be read and has this digest."""
    try:
        return digest_content(path) == digest
    except OSError:
        return False


def is_index(name: str) -> bool:
    """Whether a file is a repository's index, which git writes again by itself."""
    return name == INDEX or name.endswith(f"/{INDEX}")


def in_repositories(record: WorkspaceRecord, names: Iterable[str]) -> list[str]:
    """Those of some paths that are inside one of the workspace's repositories."""
    places = tuple(record.repositories())
    return [name for name in names if name.startswith(places)]
