"""Bare mirrors of repositories, and the commit that a ref stands for.

A mirror is fetched only when it does not have the commit yet, one fetch at a time:

    <home>/mirrors/<name>-<key>.git          each commit that was launched has a ref below
                                             refs/held, so that git never deletes it
    <home>/mirrors/<name>-<key>.git.lock     held while the mirror is changed
    <home>/.use                              held, shared, by every launch below this home
"""

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.file_lock import lock
from zoerefine.lab.launch.git.address import RepositoryAddress
from zoerefine.lab.launch.git.commands import NO_TEMPLATE, UPLOAD_PACK, GitError, git, own_keys
from zoerefine.lab.launch.home import create_home

FULL_HASH = re.compile(r"[0-9a-f]{40}")
SHORT_HASH = re.compile(r"[0-9a-f]{4,40}")
REF = re.compile(r"[\w][\w./@^~+#-]*")
ALL_REFS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
REMOTE_HEAD = "+HEAD:refs/remote-head"


def mirrors_folder(home: Path) -> Path:
    """The folder of all mirrors."""
    return home / "mirrors"


def mirrors_in_use(home: Path) -> AbstractContextManager[int]:
    """While entered, no mirror is removed. A launch enters it before its fetch until its end.

    Raises `UserError` where the home cannot be used.
    """
    create_home(home)
    return lock(home / ".use", shared=True)


def mirror_folder(address: RepositoryAddress, home: Path) -> Path:
    """The folder of a repository's bare mirror, which may not exist yet."""
    key = hashlib.sha256(address.url.encode(errors="surrogateescape")).hexdigest()[:12]
    return mirrors_folder(home) / f"{address.name}-{key}.git"


def fetch_commit(
    address: RepositoryAddress, ref: str, home: Path, branch: str = ""
) -> tuple[Path, str]:
    """Make sure that the mirror has the commit of a ref; returns the mirror and the 40-hex commit.

    Args:
        ref: a full or abbreviated hash, a tag or a branch. For a local folder also everything
            that git understands there (HEAD~1, origin/main).
        branch: if not empty, the commit must be on this branch.

    Raises `UserError` for no such repository, ref or branch, an ambiguous hash, or a commit that is
    not on the branch.
    """
    check_ref(ref)
    mirror = mirror_folder(address, home)
    if FULL_HASH.fullmatch(ref.lower()):
        ref = ref.lower()
    elif address.folder is not None:
        ref = resolve(address.folder, ref, address)  # in the user's own clone
    if FULL_HASH.fullmatch(ref) and not branch and has_commit(mirror, ref):
        return mirror, ref
    with lock(Path(f"{mirror}.lock")) as lock_fd, removed_if_refused(mirror):
        ensure_mirror(mirror)
        if not (FULL_HASH.fullmatch(ref) and has_commit(mirror, ref)):
            fetch(address, mirror, ref, lock_fd)
        commit = resolve(mirror, ref, address)
        if branch:
            check_on_branch(address, mirror, commit, branch, lock_fd)
        git("update-ref", f"refs/held/{commit}", commit, folder=mirror, pass_fds=(lock_fd,))
    return mirror, commit


def check_ref(ref: str) -> None:
    """Raises `UserError` for a ref that git could read as an option, a range or a pattern."""
    if not REF.fullmatch(ref) or ".." in ref or "@{" in ref:
        raise UserError(f"{ref!r} is not the name of a commit, tag or branch")


def ensure_mirror(mirror: Path) -> None:
    """Create an empty mirror where there is none. The caller holds the mirror's lock.

    So lock files of git in an existing mirror were left by a killed git: they are removed.
    """
    if mirror.exists():
        for stale in (*mirror.glob("*.lock"), *mirror.glob("refs/**/*.lock")):
            stale.unlink(missing_ok=True)
        return
    for leftover in mirror.parent.glob(f".{mirror.name}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = mirror.with_name(f".{mirror.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        git("init", "--quiet", "--bare", NO_TEMPLATE, temporary)
        git("config", "gc.auto", "0", folder=temporary)
        os.replace(temporary, mirror)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def removed_if_refused(mirror: Path) -> Iterator[None]:
    """Where the launch is refused, leave no mirror that it made. The caller holds its lock."""
    is_new = not mirror.exists()
    try:
        yield
    except UserError:
        if is_new:
            shutil.rmtree(mirror, ignore_errors=True)
        raise


def has_commit(mirror: Path, commit: str) -> bool:
    """Whether a mirror has a commit with all of its files."""
    if not mirror.exists():
        return False
    try:
        found = git("rev-parse", "--verify", "--quiet", f"refs/held/{commit}", folder=mirror)
    except GitError:
        return False
    return found == commit


def fetch(address: RepositoryAddress, mirror: Path, ref: str, lock_fd: int) -> None:
    """Fetch a full hash alone if the server allows that, otherwise all branches and tags.

    Of a partial clone a full hash is fetched without its history, whose files it does not have.
    """

    def fetch_refs(*words: str) -> None:
        options = ["--quiet", "--no-tags", "--update-shallow", "--no-recurse-submodules"]
        variables = address.environment()
        if address.is_local:
            options.append(f"--upload-pack={UPLOAD_PACK}")
        git("fetch", *options, *words, folder=mirror, env=variables, pass_fds=(lock_fd,))

    try:
        if FULL_HASH.fullmatch(ref) and is_partial(address):
            fetch_refs("--depth=1", "--", address.url, ref)
            return
        if FULL_HASH.fullmatch(ref):
            try:
                fetch_refs("--", address.url, ref)
                return
            except GitError:
                pass  # some servers send only branches and tags
        try:
            fetch_refs("--prune", "--", address.url, *ALL_REFS, REMOTE_HEAD)
        except GitError as error:
            if "remote ref HEAD" not in str(error):
                raise
            fetch_refs("--prune", "--", address.url, *ALL_REFS)  # its HEAD has no commit yet
            git("update-ref", "-d", "refs/remote-head", folder=mirror, pass_fds=(lock_fd,))
    except GitError as error:
        if is_partial(address):
            raise UserError(
                f"{address.url} is a partial clone without all files of {ref[:12]}: give the URL "
                "that it was cloned from as --repo, or fetch them with `git fetch --refetch "
                "--no-filter`"
            ) from None
        raise UserError(f"{address.url} cannot be fetched: {error}") from None


def is_partial(address: RepositoryAddress) -> bool:
    """Whether a repository on this machine leaves objects to the one that it was cloned from."""
    if address.folder is None:
        return False
    keys = own_keys(address.folder)
    return any(key.startswith("remote.") and key.endswith(".promisor") for key in keys)


def resolve(repository: Path, ref: str, address: RepositoryAddress) -> str:
    """The 40-hex commit of a ref: a branch, a tag (annotated or not), or a hash.

    Raises `UserError` where it has none, or stands for several.
    """
    own = repository == address.folder
    found: dict[str, str] = {}
    for name in ref_names(ref, own):
        if found and name == ref:
            break
        words = ("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        with suppress(GitError):
            found[name] = git(*words, folder=repository, foreign=own)
    named = {name: commit[:12] for name, commit in found.items() if name.startswith("refs/")}
    if named:
        by_hash = commits_by_prefix(repository, ref)
        named |= {f"the start of the hash {one[:16]}": one[:12] for one in by_hash}
    if len({*named.values()}) > 1:
        places = " and ".join(f"{name} ({commit})" for name, commit in named.items())
        raise UserError(f"{ref} is {places} in {address.url}: give the hash of one")
    if found:
        return next(iter(found.values()))
    several = commits_by_prefix(repository, ref)
    if len(several) > 1:
        listed = ", ".join(commit[:16] for commit in several[:4])
        raise UserError(
            f"{ref} is the start of {len(several)} commits in {address.url} ({listed}): give more "
            "digits"
        )
    raise UserError(
        f"no commit, tag or branch {ref!r} in {address.url}: check the spelling, or push it first"
    )


def ref_names(ref: str, local: bool) -> list[str]:
    """What to ask git for, in order. A full hash never means a branch of that name."""
    if FULL_HASH.fullmatch(ref):
        return [ref]
    if re.match(r"HEAD([~^]|$)", ref):
        return [ref] if local else [ref.replace("HEAD", "refs/remote-head", 1)]
    names = [f"refs/heads/{ref}", f"refs/tags/{ref}"]
    if local or SHORT_HASH.fullmatch(ref):
        names.append(ref)
    return names


def commits_by_prefix(repository: Path, ref: str) -> list[str]:
    """The commits whose hash starts with `ref`."""
    if not SHORT_HASH.fullmatch(ref):
        return []
    words = ("rev-parse", f"--disambiguate={ref}")
    objects = git(*words, folder=repository, foreign=True).split()
    kinds = "--batch-check=%(objecttype) %(objectname)"
    names = "\n".join(objects).encode()
    lines = git("cat-file", kinds, folder=repository, stdin=names, foreign=True)
    return [line.split()[1] for line in lines.splitlines() if line.startswith("commit ")]


def check_on_branch(
    address: RepositoryAddress, mirror: Path, commit: str, branch: str, lock_fd: int
) -> None:
    """Raises `UserError` where a commit is not on a branch."""
    check_ref(branch)
    place, own = with_history(address, mirror, branch, lock_fd)
    tip = f"refs/heads/{branch}"
    try:
        git("rev-parse", "--verify", "--quiet", tip, folder=place, foreign=own)
    except GitError:
        raise UserError(f"no branch {branch!r} in {address.url}: check the spelling") from None
    try:
        git("merge-base", "--is-ancestor", commit, tip, folder=place, foreign=own)
    except GitError:
        raise UserError(
            f"commit {commit[:12]} is not on branch {branch} of {address.url}: give the branch "
            "that has it, or no branch"
        ) from None


def branch_or_tag_with(address: RepositoryAddress, mirror: Path, commit: str) -> str:
    """A branch or tag of the repository that contains a commit now; empty where none does."""
    with lock(Path(f"{mirror}.lock")) as lock_fd:
        place, own = with_history(address, mirror, "HEAD", lock_fd)
        words = ("--contains", commit, "--format=%(refname:short)", "--count=1")
        return git("for-each-ref", *words, "refs/heads", "refs/tags", folder=place, foreign=own)


def with_history(
    address: RepositoryAddress, mirror: Path, ref: str, lock_fd: int
) -> tuple[Path, bool]:
    """The repository that has all branches, and whether it is the user's own.

    A partial clone has all commits, but cannot give them to a mirror.
    """
    if address.folder is not None and is_partial(address):
        return address.folder, True
    fetch(address, mirror, ref, lock_fd)
    return mirror, False
