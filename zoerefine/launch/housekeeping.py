"""What launching keeps on disk: listed, and cleaned up without touching what is in use."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zoerefine.launch.environment import environments_of
from zoerefine.launch.repository import mirrors_of
from zoerefine.launch.workspace import last_run, workspaces_of
from zoerefine.locks import try_lock

DAY_S = 86400.0


@dataclass(frozen=True)
class Kept:
    """Something on disk: a workspace, an environment or a mirror.

    Attributes:
        lock: the file whose lock its users hold.
        run: of a workspace, the run that used it last.
        age_s: seconds since it was last used.
        bytes: on disk; a workspace's borrowed objects are its mirror's.
    """

    kind: str
    folder: Path
    lock: Path
    run: str
    age_s: float
    bytes: int
    in_use: bool


def kept(home: Path) -> list[Kept]:
    """All that launching keeps below a home, the last used first."""
    found = [look(kind, folder, lock) for kind, folder, lock in _folders(home)]
    return sorted(found, key=lambda one: (one.kind, one.age_s))


def _folders(home: Path) -> Iterator[tuple[str, Path, Path]]:
    for folder in workspaces_of(home).glob("*/[0-9a-f]*"):
        if folder.is_dir():
            yield "workspace", folder, Path(f"{folder}.lock")
    for folder in environments_of(home).glob("[0-9a-f]*"):
        if folder.is_dir():
            yield "environment", folder, Path(f"{folder}.lock")
    for folder in mirrors_of(home).glob("[!.]*.git"):
        yield "mirror", folder, home / ".use"


def look(kind: str, folder: Path, lock: Path) -> Kept:
    """One folder's facts."""
    times = [used_at(path) for path in (folder, folder.with_name(f"{folder.name}.lock"))]
    with try_lock(lock) as held:
        in_use = held is None
    run = last_run(folder) if kind == "workspace" else ""
    return Kept(kind, folder, lock, run, time.time() - max(times), size(folder), in_use)


def size(folder: Path) -> int:
    """Bytes of a folder's files on disk."""
    total = 0
    for place, _, names in os.walk(folder):  # leaves out what vanishes meanwhile
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def used_at(path: Path) -> float:
    """When a file or folder was last touched; 0 if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def clean(home: Path, older_than_days: float, keep: int) -> list[Kept]:
    """Remove workspaces and environments; with the last workspace, the mirrors.

    The `keep` workspaces that were used last stay, and what was used within so many days, and
    what a run is using. Returns what was removed.
    """
    removed = []
    workspaces = [one for one in kept(home) if one.kind == "workspace"]
    others = [one for one in kept(home) if one.kind == "environment"]
    for one in workspaces[keep:] + others:
        if one.age_s >= older_than_days * DAY_S and remove(one):
            removed.append(one)
    remove_half_made(home)
    left = kept(home)
    if not any(one.kind == "workspace" for one in left):  # a workspace borrows from mirrors
        mirrors = [one for one in left if one.kind == "mirror"]
        removed += [m for m in mirrors if m.age_s >= older_than_days * DAY_S and remove(m)]
    return removed


def remove(one: Kept) -> bool:
    """Remove a folder if nobody uses it."""
    with try_lock(one.lock) as held:
        if held is None:
            return False
        # First out of the way: a kill in the middle leaves nothing that looks whole.
        doomed = one.folder.with_name(f".{one.folder.name}.removed.tmp")
        shutil.rmtree(doomed, ignore_errors=True)
        with suppress(FileNotFoundError):
            one.folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
        for beside in (f"{one.folder}.run", f"{one.folder}.lock"):
            Path(beside).unlink(missing_ok=True)
    return True


def remove_half_made(home: Path) -> None:
    """Remove what killed launches left half-made."""
    for leftover in workspaces_of(home).glob("*/.*.tmp"):
        slot = leftover.with_name(leftover.name[1:].rsplit(".", 2)[0])
        with try_lock(Path(f"{slot}.lock")) as held:
            if held is not None:
                shutil.rmtree(leftover, ignore_errors=True)
                if not slot.exists():
                    Path(f"{slot}.lock").unlink(missing_ok=True)
