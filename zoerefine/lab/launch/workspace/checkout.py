"""A fresh workspace: a commit checked out from its mirror, and every file verified.

The files are verified from the commit's hash down: the commit's object gives the tree, the trees
give each file's object, and the content of each file must have that object's id, or be what git
and Git LFS make of it. Submodules and the files of Git LFS are fetched, too.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.lab.launch.git.address import RepositoryAddress, parse_address, submodule_address
from zoerefine.lab.launch.git.changes import Changes
from zoerefine.lab.launch.git.commands import (
    GITLINK,
    ISOLATED,
    LINK,
    NO_TEMPLATE,
    GitError,
    error_line,
    git,
    git_bytes,
    start_git,
    write_alternates,
)
from zoerefine.lab.launch.git.mirror import fetch_commit
from zoerefine.lab.launch.workspace.record import scan

CHUNK_BYTES = 2**20
TREE = "40000"  # the mode of a folder


@dataclass(frozen=True)
class TreeEntry:
    """A file, link or submodule of a tree: its mode as git writes it, and its object's id."""

    mode: str
    id: str


def apply(folder: Path, changes: Changes) -> None:
    """Apply uncommitted changes. Raises `UserError` for a changed file of Git LFS."""
    words = ("apply", "--index", "--binary", "--whitespace=nowarn", "-")
    git(*words, folder=folder, env=ISOLATED, stdin=changes.patch)
    for name in changes.files:
        path = folder / name
        if path.is_file() and not path.is_symlink() and lfs_digest(path.read_bytes()):
            raise UserError(
                f"{name} is in Git LFS, and a run cannot record its uncommitted content: commit it"
            )


def check_out(
    folder: Path,
    address: RepositoryAddress,
    mirror: Path,
    commit: str,
    home: Path,
    lock_fd: int,
    depth: int = 0,
) -> None:
    """Check a commit out with its submodules and LFS files, borrowing the mirror's objects."""
    if depth > MAX_DEPTH:  # they seem to contain themselves
        raise UserError(f"submodules are nested more than {MAX_DEPTH} deep")
    init_from_mirror(folder, mirror, commit)
    git("remote", "add", "--", "origin", address.url, folder=folder)
    lfs = uses_lfs(folder)
    if lfs:
        set_up_lfs(folder, mirror)
    words = ("checkout", "--quiet", "--detach", commit)
    git(*words, folder=folder, env=ISOLATED, pass_fds=(lock_fd,))
    if lfs:
        pull_lfs(folder, address)
    for submodule in submodules_of(folder, commit):
        place = folder / submodule.path
        if not place.resolve().is_relative_to(folder.resolve()) or place.is_symlink():
            raise UserError(f"submodule {submodule.path} of {address.url} is outside of its tree")
        inner, inner_mirror = fetch_submodule(address, submodule, home)
        check_out(place, inner, inner_mirror, submodule.commit, home, lock_fd, depth + 1)


def init_from_mirror(folder: Path, mirror: Path, commit: str) -> None:
    """A repository without files that uses a mirror's objects and has its branches and tags.

    `git clone --shared` does not serve: it copies the objects of a shallow mirror.
    """
    git("init", "--quiet", NO_TEMPLATE, folder, env=ISOLATED)
    own = folder / ".git"
    write_alternates(own / "objects", mirror / "objects")
    if (mirror / "shallow").exists():
        shutil.copyfile(mirror / "shallow", own / "shallow")
    names = ("for-each-ref", "--format=create %(refname) %(objectname)", "refs/heads", "refs/tags")
    refs = git(*names, folder=mirror).replace("create refs/heads/", "create refs/remotes/origin/")
    lines = f"{refs}\noption no-deref\nupdate HEAD {commit}\n".lstrip()
    git("update-ref", "--stdin", folder=folder, stdin=os.fsencode(lines))


def verify(folder: Path, commit: str, changes: Changes) -> dict[str, str]:
    """Check that a fresh checkout is the commit with the changes; returns its files' SHA-256.

    Raises `UserError` where it is not.
    """
    tree = changes.tree or commit_tree(folder, commit)
    if git("write-tree", folder=folder, env=ISOLATED) != tree:
        raise UserError("its index differs from the commit")
    digests = verify_tree(folder, tree)
    present = (name for name in scan(folder).files if ".git" not in name.split("/"))
    if extra := sorted(set(present).difference(digests)):
        raise UserError(f"the commit does not have {extra[0]}")
    return digests


def verify_tree(folder: Path, tree: str) -> dict[str, str]:
    """Check the files below a folder against a tree, with its submodules; returns their SHA-256."""
    digests: dict[str, str] = {}
    converted: dict[str, TreeEntry] = {}
    for name, entry in read_tree(folder, tree).items():
        if entry.mode == GITLINK:
            inner = verify_tree(folder / name, commit_tree(folder / name, entry.id))
            digests |= {f"{name}/{path}": digest for path, digest in inner.items()}
            continue
        id_now, digests[name] = both_digests(folder / name)
        if id_now != entry.id:
            converted[name] = entry
    verify_converted(folder, converted, digests)
    return digests


def both_digests(path: Path) -> tuple[str, str]:
    """A file's id as git computes it, and its SHA-256; of a link, those of its target's name."""
    try:
        if path.is_symlink():
            data = os.fsencode(os.readlink(path))
            return sha1(b"blob %d\0" % len(data) + data).hexdigest(), sha256(data).hexdigest()
        with open(path, "rb") as file:
            own, other = sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size), sha256()
            while data := file.read(CHUNK_BYTES):
                own.update(data)
                other.update(data)
        return own.hexdigest(), other.hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def verify_converted(
    folder: Path, converted: Mapping[str, TreeEntry], digests: Mapping[str, str]
) -> None:
    """Check files whose content is not their object's: of Git LFS, or with other line endings."""
    if not converted:
        return
    ids = sorted({entry.id for entry in converted.values()})
    pointers = {one: lfs_digest(content) for one, content in read_objects(folder, "blob", ids)}
    others = []
    for name, entry in converted.items():
        if entry.mode == LINK or (pointers[entry.id] or digests[name]) != digests[name]:
            raise UserError(f"{name} has another content")
        if not pointers[entry.id]:
            others.append(name)
    scratch = folder / ".git" / "verified"
    words = ("checkout-index", "-z", "--stdin", f"--prefix={scratch}/")
    git(*words, folder=folder, env=ISOLATED, stdin=b"\0".join(map(os.fsencode, others)))
    for name in others:
        if both_digests(scratch / name)[1] != digests[name]:
            raise UserError(f"{name} has another content")
    shutil.rmtree(scratch, ignore_errors=True)


MAX_DEPTH = 8
LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[^\n]*\n)*?oid sha256:([0-9a-f]{64})\n"
)
MAX_POINTER_BYTES = 1024


@dataclass(frozen=True)
class Submodule:
    """A repository inside a commit's tree: its path there, its commit, and its URL."""

    path: str
    commit: str
    url: str


def submodules_of(repository: Path, commit: str) -> Iterator[Submodule]:
    """The submodules of a commit. Raises `UserError` for one without a URL."""
    listing = git("ls-tree", "-r", "-z", "--full-tree", commit, folder=repository)
    links = [entry.split("\t", 1) for entry in listing.split("\0") if entry.startswith(GITLINK)]
    urls = _urls(repository, commit) if links else {}
    for facts, path in links:
        if path not in urls:
            raise UserError(f"commit {commit[:12]} has a submodule {path} without a URL")
        yield Submodule(path, facts.split()[2], urls[path])


def _urls(repository: Path, commit: str) -> dict[str, str]:
    try:
        text = git("config", "--blob", f"{commit}:.gitmodules", "--list", "-z", folder=repository)
    except GitError as error:
        raise UserError(f".gitmodules of commit {commit[:12]} cannot be read: {error}") from None
    fields: dict[str, dict[str, str]] = {}
    for entry in text.split("\0"):
        key, _, value = entry.partition("\n")
        name, _, field = key.rpartition(".")
        fields.setdefault(name, {})[field] = value
    return {
        found["path"]: found["url"] for found in fields.values() if {"path", "url"} <= set(found)
    }


def fetch_submodule(
    parent: RepositoryAddress, submodule: Submodule, home: Path
) -> tuple[RepositoryAddress, Path]:
    """The address of a submodule, and its mirror with the commit.

    In a local working tree the submodule's own checkout is tried first, since the commit may not
    be pushed yet.
    """
    if parent.folder is not None and (parent.folder / submodule.path / ".git").exists():
        try:
            address = parse_address(str(parent.folder / submodule.path))
            return address, fetch_commit(address, submodule.commit, home)[0]
        except UserError:
            pass
    address = submodule_address(parent, submodule.url)
    return address, fetch_commit(address, submodule.commit, home)[0]


def uses_lfs(folder: Path) -> bool:
    """Whether a checkout has files in Git LFS."""
    try:
        git("grep", "-q", "filter=lfs", "HEAD", "--", ":(glob)**/.gitattributes", folder=folder)
    except GitError:
        return False
    return True


def set_up_lfs(folder: Path, mirror: Path) -> None:
    """Enable Git LFS, with its files kept in the mirror. Raises `UserError` without git-lfs."""
    if shutil.which("git-lfs") is None:
        raise UserError(
            "the commit keeps files in Git LFS, and git-lfs is not installed: install it "
            "(e.g. apt install git-lfs)"
        )
    git("lfs", "install", "--local", "--skip-smudge", "--skip-repo", folder=folder, env=ISOLATED)
    git("config", "lfs.storage", str(mirror / "lfs"), folder=folder)


def pull_lfs(folder: Path, address: RepositoryAddress) -> None:
    """Fetch the contents of Git LFS files. Raises `UserError` where one cannot be fetched."""
    try:
        git("lfs", "pull", folder=folder, env=ISOLATED | address.environment())
        missing = [n for n in git("lfs", "ls-files", folder=folder).splitlines() if " - " in n]
    except GitError as error:
        raise UserError(f"Git LFS files of {address.url} cannot be fetched: {error}") from None
    if missing:
        raise UserError(f"{address.url} has no Git LFS content for {missing[0].split(' - ')[1]}")


def lfs_digest(content: bytes) -> str:
    """The SHA-256 of the file that a Git LFS pointer stands for; empty for other contents."""
    found = LFS_POINTER.match(content) if len(content) <= MAX_POINTER_BYTES else None
    return found[1].decode() if found else ""


# Git objects whose content is hashed again: what a commit's hash stands for, whatever a disk did.
#
# Git does not hash the objects that it reads from a pack, so a damaged or forged object could give
# other files than the commit's.


@contextmanager
def object_reader(repository: Path) -> Iterator[Callable[[str], bytes]]:
    """While entered, one git process gives objects' contents by their ids.

    The function that it yields raises `UserError` for an object that git cannot read.
    """
    process = start_git(["cat-file", "--batch"], repository, ISOLATED, takes_input=True)

    def read(one: str) -> bytes:
        assert process.stdin and process.stdout
        with suppress(OSError):  # it has ended
            process.stdin.write(f"{one}\n".encode())
            process.stdin.flush()
        *_, size = process.stdout.readline().split() or [b"missing"]
        if size.isdigit():
            content = process.stdout.read(int(size) + 1)[:-1]  # a newline follows
            if len(content) == int(size):
                return content
        raise unreadable(process, repository, one)

    with process:
        yield read


def unreadable(process: "subprocess.Popen[bytes]", repository: Path, one: str) -> UserError:
    """Why the process that reads objects did not give one of them. Ends the process."""
    _, errors = process.communicate()
    if message := errors.decode(errors="replace").strip():
        return GitError(f"git cat-file failed: {error_line(message)}")
    return UserError(f"{repository} does not have the object {one}")


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
