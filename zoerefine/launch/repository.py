"""A source's bare mirror, and which commit a ref means there.

A mirror is fetched only for a commit that it does not hold yet, one fetch at a time:

    <home>/mirrors/<name>-<key>.git          every commit that was ever launched is held by a
                                             ref below refs/held, and is never collected
    <home>/mirrors/<name>-<key>.git.lock     held while the mirror is being changed
    <home>/.use                              shared by all launches below this home
"""

import hashlib
import os
import re
import shutil
import uuid
from contextlib import AbstractContextManager
from pathlib import Path

from zoerefine.errors import UserError
from zoerefine.launch.git_commands import GitError, git
from zoerefine.launch.repository_address import RepositoryAddress
from zoerefine.locks import lock

FULL_HASH = re.compile(r"[0-9a-f]{40}")
SOME_HASH = re.compile(r"[0-9a-f]{4,40}")
REF = re.compile(r"[\w][\w./@^~+#-]*")
ALL_REFS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+HEAD:refs/remote-head")


def mirrors_of(home: Path) -> Path:
    """The folder of all mirrors."""
    return home / "mirrors"


def using(home: Path) -> AbstractContextManager[int]:
    """Held from before a fetch until the job's end: meanwhile no mirror is removed."""
    return lock(home / ".use", shared=True)


def mirror_of(source: RepositoryAddress, home: Path) -> Path:
    """The folder of a source's bare mirror (it may not exist yet)."""
    key = hashlib.sha256(source.url.encode(errors="surrogateescape")).hexdigest()[:12]
    return mirrors_of(home) / f"{source.name}-{key}.git"


def fetch_commit(
    source: RepositoryAddress, ref: str, home: Path, branch: str = ""
) -> tuple[Path, str]:
    """Make sure that the mirror holds what `ref` means; returns the mirror and the 40-hex commit.

    `ref` is a full or abbreviated hash, a tag or a branch; in a local folder it may be whatever
    its own git understands (HEAD~1, origin/main). With `branch`, the commit must be on it.

    Raises:
        UserError: no such repository, ref or branch; an ambiguous hash; not on the branch.
    """
    check_ref(ref)
    mirror = mirror_of(source, home)
    if FULL_HASH.fullmatch(ref.lower()):
        ref = ref.lower()
    elif source.folder is not None:
        ref = resolve(source.folder, ref, source)  # the user's own view of names
    if FULL_HASH.fullmatch(ref) and not branch and holds(mirror, ref):
        return mirror, ref
    with lock(Path(f"{mirror}.lock")) as held:
        ready_mirror(mirror)
        if not (FULL_HASH.fullmatch(ref) and holds(mirror, ref)):
            fetch(source, mirror, ref, held)
        commit = resolve(mirror, ref, source)
        if branch:
            check_on_branch(source, mirror, commit, branch, held)
        git("update-ref", f"refs/held/{commit}", commit, folder=mirror, keep=(held,))
    return mirror, commit


def check_ref(ref: str) -> None:
    """Raises `UserError` for a ref that git could take for an option, a range or a pattern."""
    if not REF.fullmatch(ref) or ".." in ref or "@{" in ref:
        raise UserError(f"{ref!r} is no commit, tag or branch name")


def ready_mirror(mirror: Path) -> None:
    """A bare repository that never throws commits away by itself, made by rename if absent.

    The caller holds the mirror's lock, so lock files of git in it are those of a killed one.
    """
    if mirror.exists():
        for stale in (*mirror.glob("*.lock"), *mirror.glob("refs/**/*.lock")):
            stale.unlink(missing_ok=True)
        return
    for leftover in mirror.parent.glob(f".{mirror.name}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = mirror.with_name(f".{mirror.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        git("init", "--quiet", "--bare", "--template=", temporary)
        git("config", "gc.auto", "0", folder=temporary)
        os.replace(temporary, mirror)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def holds(mirror: Path, commit: str) -> bool:
    """Whether a commit has been fetched into a mirror whole."""
    if not mirror.exists():
        return False
    try:
        held = git("rev-parse", "--verify", "--quiet", f"refs/held/{commit}", folder=mirror)
    except GitError:
        return False
    return held == commit


def fetch(source: RepositoryAddress, mirror: Path, ref: str, held: int) -> None:
    """Bring a full hash alone if the other side allows it, else all branches and tags."""

    def fetch_refs(*words: str) -> None:
        plain = ("fetch", "--quiet", "--no-tags", "--update-shallow", "--no-recurse-submodules")
        git(*plain, *words, folder=mirror, env=source.environment(), keep=(held,))

    try:
        if FULL_HASH.fullmatch(ref):
            try:
                fetch_refs("--", source.url, ref)
                return
            except GitError:
                pass  # some servers give named refs only
        fetch_refs("--prune", "--", source.url, *ALL_REFS)
    except GitError as error:
        raise UserError(f"{source.url} cannot be fetched: {error}") from None


def resolve(repository: Path, ref: str, source: RepositoryAddress) -> str:
    """The 40-hex commit of a ref: a branch, a tag (annotated or not), or a hash."""
    for name in names_of(ref, repository == source.folder):
        try:
            return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", folder=repository)
        except GitError:
            continue
    several = candidates(repository, ref)
    if len(several) > 1:
        shown = ", ".join(commit[:16] for commit in several[:4])
        raise UserError(
            f"{ref} means {len(several)} commits in {source.url} ({shown}): give more digits"
        )
    raise UserError(
        f"no commit, tag or branch {ref!r} in {source.url}: check the spelling, or push it first"
    )


def names_of(ref: str, local: bool) -> list[str]:
    """What git is asked for, in order. A full hash is nothing else, whatever a branch is called."""
    if FULL_HASH.fullmatch(ref):
        return [ref]
    if re.match(r"HEAD([~^]|$)", ref):
        return [ref] if local else [ref.replace("HEAD", "refs/remote-head", 1)]
    names = [f"refs/heads/{ref}", f"refs/tags/{ref}"]
    if local or SOME_HASH.fullmatch(ref):
        names.append(ref)
    return names


def candidates(repository: Path, ref: str) -> list[str]:
    """Commits whose hash starts with `ref`."""
    if not SOME_HASH.fullmatch(ref):
        return []
    objects = git("rev-parse", f"--disambiguate={ref}", folder=repository).split()
    kinds = "--batch-check=%(objecttype) %(objectname)"
    lines = git("cat-file", kinds, folder=repository, stdin="\n".join(objects).encode())
    return [line.split()[1] for line in lines.splitlines() if line.startswith("commit ")]


def check_on_branch(
    source: RepositoryAddress, mirror: Path, commit: str, branch: str, held: int
) -> None:
    """Raises `UserError` where a branch does not hold a commit."""
    check_ref(branch)
    fetch(source, mirror, branch, held)
    tip = f"refs/heads/{branch}"
    try:
        git("rev-parse", "--verify", "--quiet", tip, folder=mirror)
    except GitError:
        raise UserError(f"no branch {branch!r} in {source.url}: check the spelling") from None
    try:
        git("merge-base", "--is-ancestor", commit, tip, folder=mirror)
    except GitError:
        raise UserError(
            f"branch {branch} of {source.url} does not hold commit {commit[:12]}: give the "
            "branch that does, or no branch"
        ) from None


def named_by(source: RepositoryAddress, mirror: Path, commit: str) -> str:
    """A branch or tag of the source that holds a commit; empty where none does any more."""
    with lock(Path(f"{mirror}.lock")) as held:
        fetch(source, mirror, "HEAD", held)
        words = ("--contains", commit, "--format=%(refname:short)", "--count=1")
        return git("for-each-ref", *words, "refs/heads", "refs/tags", folder=mirror)
