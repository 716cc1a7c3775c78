"""Git objects whose content is hashed again: what a commit's hash stands for, whatever a disk did.

Git does not hash the objects that it reads from a pack, so a damaged or forged object could give
other files than the commit's.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.commands import ISOLATED, git_bytes, object_reader

TREE, LINK = "40000", "120000"


@dataclass(frozen=True)
class TreeEntry:
    """A file, link or submodule of a tree: its mode as git writes it, and its object's id."""

    mode: str
    id: str


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
    content = git_bytes("cat-file", "commit", commit, folder=repository, env=ISOLATED)
    check_content(repository, "commit", commit, content)
    return content.split(b"\n", 1)[0].removeprefix(b"tree ").decode()


def read_tree(repository: Path, tree: str) -> dict[str, TreeEntry]:
    """Every file, link and submodule below a tree by its path.

    Raises `UserError` where one of the tree's objects is damaged.
    """
    found: dict[str, TreeEntry] = {}
    folders = [("", tree)]
    with object_reader(repository) as read:
        for prefix, one in folders:  # grows while we go through it
            body = read(one)
            check_content(repository, "tree", one, body)
            for name, entry in tree_entries(body):
                if entry.mode.lstrip("0") == TREE:
                    folders.append((f"{prefix}{name}/", entry.id))
                else:
                    found[prefix + name] = entry
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


def read_objects(repository: Path, kind: str, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Objects by their ids, one in memory at a time. Raises `UserError` where one is damaged."""
    with object_reader(repository) as read:
        for one in ids:
            content = read(one)
            check_content(repository, kind, one, content)
            yield one, content


def check_content(repository: Path, kind: str, one: str, content: bytes) -> None:
    """Raises `UserError` where an object's content does not have its id."""
    head = b"%s %d\0" % (kind.encode(), len(content))
    if hashlib.sha1(head + content).hexdigest() != one:
        raise UserError(f"{repository} is damaged: {kind} {one} has another content")
