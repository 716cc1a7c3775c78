"""A repository as launching sees it: where it is, its mirror, and which commit a ref means.

A source is a local folder, a `file://`, `http(s)://`, `ssh://` or `git://` URL, or the SSH form
`host:path`. Its bare mirror is fetched only for a commit that it does not hold yet, one fetch at
a time. Refs and sources come from users: none may look like an option or name a helper program.
"""

import hashlib
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from zoerefine.errors import UserError
from zoerefine.launch.git import GitError, git
from zoerefine.launch.provenance import without_credentials

FULL_HASH = re.compile(r"[0-9a-f]{40}")
SOME_HASH = re.compile(r"[0-9a-f]{4,40}")
REF = re.compile(r"[\w][\w./@^~+#-]*")
URL = re.compile(r"(file|https?|ssh|git)://[^\s]+")
SSH_FORM = re.compile(r"[\w.-]+(@[\w.-]+)?:(?!:|//)[^\s]+")


@dataclass(frozen=True)
class Source:
    """Where commits come from.

    Attributes:
        url: what git is given; may hold credentials, so it is never written down.
        shown: the same without them.
        folder: the working tree, where the source is a local one.
    """

    url: str
    shown: str
    folder: Path | None

    @property
    def name(self) -> str:
        """The repository's name: the last part of the path, without a `.git` ending."""
        last = re.split(r"[/:]", self.shown.rstrip("/"))[-1]
        return re.sub(r"[^\w.-]", "_", last.removesuffix(".git")) or "repository"


def open_source(text: str) -> Source:
    """Check a repository argument. Raises `UserError` for what is none, or not allowed."""
    if text.startswith("-") or "\n" in text or "\0" in text or not text:
        raise UserError(f"--repo {text!r} is no URL or folder")
    folder = Path(text).expanduser()
    if folder.exists():
        return _local(folder.resolve())
    if URL.fullmatch(text):
        if text.startswith("file://") and Path(text.removeprefix("file://")).is_dir():
            return Source(text, text, None)
        return Source(text, without_credentials(text), None)
    if SSH_FORM.fullmatch(text):
        return Source(text, text, None)
    raise UserError(
        f"--repo {text!r} is neither an existing folder nor a file, http(s), ssh or git URL"
    )


def _local(folder: Path) -> Source:
    try:
        bare = git("rev-parse", "--is-bare-repository", folder=folder) == "true"
        top = folder if bare else Path(git("rev-parse", "--show-toplevel", folder=folder))
    except GitError:
        raise UserError(f"--repo {folder} is a folder without a git repository") from None
    return Source(str(top), str(top), None if bare else top)


def mirror_of(source: Source, home: Path) -> Path:
    """The folder of a source's bare mirror (it may not exist yet)."""
    key = hashlib.sha256(source.shown.encode()).hexdigest()[:12]
    return home / "mirrors" / f"{source.name}-{key}.git"


def fetch_commit(source: Source, ref: str, home: Path, branch: str = "") -> tuple[Path, str]:
    """Make sure that the mirror holds what `ref` means; returns the mirror and the 40-hex commit.

    `ref` is a full or abbreviated hash, a tag or a branch; HEAD in a local folder is its HEAD.
    With `branch`, the commit must be on it.

    Raises:
        UserError: no such repository, ref or branch; an ambiguous hash; not on the branch.
    """
    check_ref(ref)
    mirror = mirror_of(source, home)
    mirror.parent.mkdir(parents=True, exist_ok=True)
    if source.folder is not None and not FULL_HASH.fullmatch(ref):
        ref = resolve(source.folder, ref, source)  # the user's own view of names
    with FileLock(f"{mirror}.lock"):
        if not mirror.exists():
            create_mirror(mirror)
        if not (FULL_HASH.fullmatch(ref) and holds(mirror, ref)):
            fetch(source, mirror, ref)
        commit = resolve(mirror, ref, source)
        if branch:
            check_on_branch(source, mirror, commit, branch)
    return mirror, commit


def check_ref(ref: str) -> None:
    """Raises `UserError` for a ref that git could take for an option, a range or a pattern."""
    if not REF.fullmatch(ref) or ".." in ref or "@{" in ref:
        raise UserError(f"{ref!r} is no commit, tag or branch name")


def create_mirror(mirror: Path) -> None:
    """An empty bare repository, published by rename, that never throws commits away by itself."""
    temporary = mirror.with_name(f".{mirror.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        git("init", "--quiet", "--bare", temporary)
        git("config", "gc.auto", "0", folder=temporary)
        os.replace(temporary, mirror)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def holds(mirror: Path, commit: str) -> bool:
    """Whether a mirror has a commit and everything that it needs."""
    try:
        git("cat-file", "-e", f"{commit}^{{tree}}", folder=mirror)
        git("rev-parse", "--verify", "--quiet", f"refs/held/{commit}", folder=mirror)
    except GitError:
        return False
    return True


def fetch(source: Source, mirror: Path, ref: str) -> None:
    """Bring a full hash alone if the other side allows it, else all branches and tags."""
    if FULL_HASH.fullmatch(ref):
        try:
            git("fetch", "--quiet", "--no-tags", "--", source.url, ref, folder=mirror)
            hold(mirror, ref)
            return
        except GitError:
            pass  # some servers give named refs only
    refs = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+HEAD:refs/remote-head")
    try:
        git("fetch", "--quiet", "--prune", "--no-tags", "--", source.url, *refs, folder=mirror)
    except GitError as error:
        message = str(error).replace(source.url, source.shown)
        raise UserError(f"{source.shown} cannot be fetched: {message}") from None


def hold(mirror: Path, commit: str) -> None:
    """Name a commit, so that it counts as fetched whole and is never collected."""
    git("update-ref", f"refs/held/{commit}", commit, folder=mirror)


def resolve(repository: Path, ref: str, source: Source) -> str:
    """The 40-hex commit of a ref: a branch, a tag (annotated or not), or a hash."""
    names = [f"refs/heads/{ref}", f"refs/tags/{ref}"]
    if ref == "HEAD":
        names = ["refs/remote-head", "HEAD"]
    elif SOME_HASH.fullmatch(ref) or repository == source.folder:
        names.append(ref)
    for name in names:
        try:
            commit = git(
                "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", folder=repository
            )
        except GitError as error:
            if "ambiguous" in str(error):
                break
            continue
        if repository != source.folder:
            hold(repository, commit)
        return commit
    count = len(candidates(repository, ref))
    if count > 1:
        raise UserError(f"{ref} means {count} commits in {source.shown}: give more digits")
    raise UserError(
        f"no commit, tag or branch {ref!r} in {source.shown}: check the spelling, or push it first"
    )


def candidates(repository: Path, ref: str) -> list[str]:
    """Objects whose hash starts with `ref`."""
    if not SOME_HASH.fullmatch(ref):
        return []
    return git("rev-parse", f"--disambiguate={ref}", folder=repository).split()


def check_on_branch(source: Source, mirror: Path, commit: str, branch: str) -> None:
    """Raises `UserError` where a branch does not hold a commit."""
    check_ref(branch)
    fetch(source, mirror, branch)
    tip = resolve(mirror, branch, source)
    try:
        git("merge-base", "--is-ancestor", commit, tip, folder=mirror)
    except GitError:
        raise UserError(
            f"branch {branch} of {source.shown} does not hold commit {commit[:12]}: give the "
            "branch that does, or no branch"
        ) from None
