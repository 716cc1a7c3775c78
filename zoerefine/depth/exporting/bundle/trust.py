"""Which bundles of code this user trusts: what they exported, and what they accepted once.

TorchScript and `.pt2` files are programs: loading one runs its code with the user's rights. So a
bundle of that kind is loaded only if its digest, which covers every byte of its file, is in the
user's list.
"""

import os
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_text
from zoerefine.base.files.file_lock import lock
from zoerefine.base.messages import warn
from zoerefine.depth.exporting.bundle.manifest import plain

MAX_REMEMBERED = 20_000  # lines of the list; the oldest are dropped

_trusted_here: set[str] = set()  # by this process alone, where the list cannot be written


def trust_list() -> Path:
    """The user's list: $ZOEREFINE_TRUSTED, or a file in the user's state folder (XDG).

    A line is a bundle's digest, a space, and the path that it had. Removing a line ends the trust.
    Raises `UserError` for a user without a home folder.
    """
    if path := os.environ.get("ZOEREFINE_TRUSTED"):
        return Path(path)
    if root := os.environ.get("XDG_STATE_HOME"):
        return Path(root) / "zoerefine" / "trusted.txt"
    try:
        return Path.home() / ".local" / "state" / "zoerefine" / "trusted.txt"
    except RuntimeError:
        raise UserError("this user has no home folder") from None


def is_trusted(digest: str) -> bool:
    """Whether the user has exported or accepted a bundle with this digest."""
    return digest in _trusted_here or digest in _digests(_read_lines())


def trust(digest: str, path: str | Path) -> None:
    """Add a bundle to the user's list. Where it cannot be written, only this process trusts it."""
    try:
        _remember(digest, " ".join(os.path.abspath(path).split()))
    except (UserError, OSError) as error:
        if not _trusted_here:
            warn(
                f"no trusted bundle can be remembered, because {error}: the next command needs "
                "--trust to load it, or ZOEREFINE_TRUSTED=FILE with a file that can be written"
            )
        _trusted_here.add(digest)


def require_trust(path: str | Path, manifest: dict[str, Any], accept: bool) -> None:
    """Before code is loaded: the bundle must be on the user's list, or `accept` puts it there.

    Args:
        manifest: with the digest that the file was verified with.

    Raises:
        UserError: an unknown bundle that is not accepted.
    """
    if is_trusted(manifest["digest"]):
        return
    if not accept:
        run, commit = (plain(manifest.get(key) or "unknown") for key in ("run", "commit"))
        raise UserError(
            f"{path} is a program (engine {manifest['engine']}) that you have neither exported nor "
            f"accepted here, and loading it runs it with your rights; it claims to come from run "
            f"{run} at commit {commit[:12]}: if you trust who gave it to you, add --trust once "
            "(in Python: trust=True)"
        )
    trust(manifest["digest"], path)


def _remember(digest: str, name: str) -> None:
    path = trust_list()
    with lock(path.with_name(f".{path.name}.lock")):
        lines = _read_lines()
        if digest not in _digests(lines):
            kept = [*lines, f"{digest} {name}"][-MAX_REMEMBERED:]
            write_text(path, "".join(f"{line}\n" for line in kept))


def _read_lines() -> list[str]:
    try:
        return trust_list().read_text(encoding="utf-8", errors="replace").splitlines()
    except (UserError, OSError):  # no list yet, or no home folder
        return []


def _digests(lines: list[str]) -> set[str]:
    return {line.partition(" ")[0] for line in lines}
