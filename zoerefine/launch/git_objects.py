"""Git objects whose content is hashed again: what a commit's hash stands for, whatever a disk did.

Git does not hash the objects that it reads from a pack, so a damaged or forged object could give
other files than the commit's.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.launch.git_commands import ISOLATED, git_bytes

TREE, LINK, GITLINK = "40000", "120000", "160000"
BATCH, BATCH_BYTES = 256, 64 * 2**20


@dataclass(frozen=True)
class TreeEntry:
    """A file, link or submodule of a tree: its mode as git writes it, and its object's id."""

    mode: str
    id: str


def object_id(kind: str, content: bytes) -> str:
    """The id that git gives to an object."""
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content).hexdigest()


def write_alternates(objects: Path, borrowed: Path) -> None:
    """Let a repository's folder of objects borrow those of another. Paths may hold any byte."""
    path = os.fsencode(borrowed)
    if b"\n" in path or path.startswith(b'"'):  # git-lfs does not read quoted paths
        escapes = {b"\\": b"\\\\", b'"': b'\\"', b"\n": b"\\n"}
        path = b'"%s"' % b"".join(escapes.get(bytes([one]), bytes([one])) for one in path)
    (objects / "info").mkdir(parents=True, exist_ok=True)
    (objects / "info" / "alternates").write_bytes(path + b"\n")


def commit_tree(repository: Path, commit: str) -> str:
    """The tree of a commit. Raises `UserError` where the commit's object is damaged."""
    ((_, content),) = read_objects(repository, "commit", [commit])
    return content.split(b"\n", 1)[0].removeprefix(b"tree ").decode()


def read_tree(repository: Path, tree: str) -> dict[str, TreeEntry]:
    """Every file, link and submodule below a tree by its path.

    Raises `UserError` where one of the tree's objects is damaged.
    """
    found: dict[str, TreeEntry] = {}
    level = [("", tree)]
    while level:
        bodies = dict(read_objects(repository, "tree", sorted({one for _, one in level})))
        below: list[tuple[str, str]] = []
        for prefix, folder in level:
            for name, entry in tree_entries(bodies[folder]):
                if entry.mode.lstrip("0") == TREE:
                    below.append((f"{prefix}{name}/", entry.id))
                else:
                    found[prefix + name] = entry
        level = below
    return found


def tree_entries(body: bytes) -> Iterator[tuple[str, TreeEntry]]:
    """The names in a tree object, and what they stand for."""
    start = 0
    while start < len(body):
        end = body.index(b"\0", start)
        mode, _, name = body[start:end].partition(b" ")
        start = end + 21
        entry = TreeEntry(mode.decode(), body[end + 1 : start].hex())
        yield name.decode(errors="surrogateescape"), entry


def cat_file(how: str, repository: Path, ids: Sequence[str]) -> bytes:
    """What `git cat-file` prints about objects."""
    words = "\n".join(ids).encode()
    return git_bytes("cat-file", how, folder=repository, env=ISOLATED, stdin=words)


def batches(repository: Path, ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Objects in groups whose contents fit into memory together; a large one is alone."""
    if len(ids) == 1:
        yield ids
        return
    batch: list[str] = []
    total_bytes = 0
    sizes = cat_file("--batch-check=%(objectsize)", repository, ids).decode().splitlines()
    for one, size in zip(ids, sizes, strict=True):
        size_bytes = int(size) if size.isdigit() else 0  # "<id> missing"
        if batch and (len(batch) == BATCH or total_bytes + size_bytes > BATCH_BYTES):
            yield batch
            batch, total_bytes = [], 0
        batch.append(one)
        total_bytes += size_bytes
    if batch:
        yield batch


def read_objects(repository: Path, kind: str, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Objects by their ids. Raises `UserError` where a content does not have its id."""
    for some in batches(repository, ids):
        data = cat_file("--batch", repository, some)
        place = 0
        for one in some:
            head, _, _ = data[place : place + 200].partition(b"\n")
            words = head.split()
            if len(words) != 3:
                raise UserError(f"{repository} does not have the object {one}")
            place += len(head) + 1
            content = data[place : place + int(words[2])]
            place += len(content) + 1
            if object_id(kind, content) != one:
                raise UserError(f"{repository} is damaged: {kind} {one} has another content")
            yield one, content
