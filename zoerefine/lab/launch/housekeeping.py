"""The folder of mirrors, workspaces and environments: what is kept there, and what is removed."""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoerefine.base.files.atomic import bytes_on_disk
from zoerefine.base.files.file_lock import is_locked, try_lock
from zoerefine.base.messages import first_few, say, warn
from zoerefine.base.progress import track
from zoerefine.base.run_dir import modified_ns
from zoerefine.lab.launch.environment import environments_folder
from zoerefine.lab.launch.git.mirror import mirrors_folder
from zoerefine.lab.launch.workspace.left import rescue
from zoerefine.lab.launch.workspace.workspace import (
    delete_folder,
    delete_workspace,
    last_run,
    workspaces_folder,
)

DAY_S = 86400.0
HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{32}\b")  # of a commit, in the name of a workspace
MIRROR_NAME = re.compile(r".+-[0-9a-f]{12}(\.git)?")
WORKSPACE_NAME = re.compile(r"[0-9a-f]{40}(-[0-9a-f]{12})?\.\d+")
LEFTOVER_NAME = re.compile(r"\.[0-9a-f]{40}(-[0-9a-f]{12})?\.\d+\.\w+\.tmp")
ENVIRONMENT_NAME = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class StoredFolder:
    """A workspace, an environment or a mirror.

    Attributes:
        kind: `workspace`, `environment` or `mirror`.
        lock_file: held by those who use the folder.
        run: the run that used a workspace last; empty for other kinds.
        age_s: seconds since the last use.
        bytes: size on disk. The objects that a workspace borrows count for its mirror.
    """

    kind: str
    folder: Path
    lock_file: Path
    run: str
    age_s: float
    bytes: int
    in_use: bool


def stored_folders(home: Path) -> list[StoredFolder]:
    """All folders that launching keeps below a home, sorted by kind and last use."""
    places = list(_folders(home))
    found = [_describe(*place) for place in track(places, len(places), "measuring", "folder")]
    return sorted(found, key=lambda one: (one.kind, one.age_s))


def _folders(home: Path) -> Iterator[tuple[str, Path, Path]]:
    for mirror in own_folders(workspaces_folder(home), MIRROR_NAME):
        for folder in own_folders(mirror, WORKSPACE_NAME):
            yield "workspace", folder, Path(f"{folder}.lock")
    for folder in own_folders(environments_folder(home), ENVIRONMENT_NAME):
        yield "environment", folder, Path(f"{folder}.lock")
    for folder in own_folders(mirrors_folder(home), MIRROR_NAME):
        yield "mirror", folder, home / ".use"


def own_folders(place: Path, name: re.Pattern[str]) -> list[Path]:
    """The folders in a place whose names we give. A symbolic link is never followed."""
    if place.is_symlink() or not place.is_dir():
        return []
    entries = [entry for entry in os.scandir(place) if name.fullmatch(entry.name)]
    return [place / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _describe(kind: str, folder: Path, lock_file: Path) -> StoredFolder:
    used_s = max(map(modified_ns, (folder, folder.with_name(f"{folder.name}.lock")))) / 1e9
    run = last_run(folder) if kind == "workspace" else ""
    age_s = time.time() - used_s
    return StoredFolder(
        kind, folder, lock_file, run, age_s, bytes_on_disk(folder), is_locked(lock_file)
    )


def to_clean(home: Path, older_than_days: float, keep: int) -> list[StoredFolder]:
    """What `clean` removes, but for workspaces with files that turn out to be not collectable."""
    stored = stored_folders(home)
    free = [one for one in _old(stored, older_than_days, keep) if not one.in_use]
    some_stay = any(one.kind == "workspace" and one not in free for one in stored)
    return [one for one in free if one.kind != "mirror" or not some_stay]


def clean(
    home: Path, older_than_days: float, keep: int, discard: bool = False
) -> list[StoredFolder]:
    """Remove workspaces and environments, and the mirrors once no workspace is left.

    What a job left in a workspace is collected into its run first. A workspace with files that
    cannot be collected stays.

    Args:
        older_than_days: folders that were used within this time stay.
        keep: how many of the most recently used workspaces stay.
        discard: delete files that cannot be collected.

    Returns:
        What was removed. A folder that a run is using always stays.
    """
    old = _old(stored_folders(home), older_than_days, keep)
    removed = _remove([one for one in old if one.kind != "mirror"], discard)
    remove_half_made(home)
    left = stored_folders(home)
    if not any(one.kind == "workspace" for one in left):  # a workspace borrows from its mirror
        removed += _remove(_old(left, older_than_days, keep=0), discard)
    return removed


def _old(stored: list[StoredFolder], older_than_days: float, keep: int) -> list[StoredFolder]:
    kept = [one for one in stored if one.kind == "workspace"][:keep]
    return [one for one in stored if one.age_s >= older_than_days * DAY_S and one not in kept]


def _remove(folders: list[StoredFolder], discard: bool) -> list[StoredFolder]:
    removing = track(folders, len(folders), "removing", "folder")
    return [one for one in removing if remove(one, discard)]


def remove(stored: StoredFolder, discard: bool) -> bool:
    """Remove a folder; False if a process uses it, or it holds files that were not collected."""
    with try_lock(stored.lock_file) as lock_fd:
        if lock_fd is None:
            return False
        if stored.kind == "workspace" and not discard and (names := rescue(stored.folder)):
            say(
                f"{stored.folder} stays: it holds files of {stored.run or 'an unknown run'} that "
                f"were not collected: {first_few(names)}; --clean --discard --yes deletes them"
            )
            return False
        delete = delete_workspace if stored.kind == "workspace" else delete_folder
        delete(stored.folder)
        Path(f"{stored.folder}.lock").unlink(missing_ok=True)
    return True


def remove_half_made(home: Path) -> None:
    """Remove the temporary folders of killed launches."""
    mirrors = own_folders(workspaces_folder(home), MIRROR_NAME)
    for leftover in [one for mirror in mirrors for one in own_folders(mirror, LEFTOVER_NAME)]:
        workspace = leftover.with_name(leftover.name[1:].rsplit(".", 2)[0])
        with try_lock(Path(f"{workspace}.lock")) as lock_fd:
            if lock_fd is not None:
                shutil.rmtree(leftover, ignore_errors=True)
                if not workspace.exists():
                    delete_workspace(workspace)  # what is left of its record
                    Path(f"{workspace}.lock").unlink(missing_ok=True)


def print_stored(folders: Sequence[StoredFolder], what: str, home: Path) -> None:
    """A table of what is kept on disk, or was removed; a terminal gets short hashes and names."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from zoerefine.lab.listing.table import parts_of

    is_terminal = sys.stdout.isatty()
    table = Table(title=f"{what} {home}", title_justify="left", box=None, pad_edge=False)
    for column in ("kind", "name", "MB", "unused h", "last run"):
        numeric = column in ("MB", "unused h")
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for one in folders:
        name = one.folder.relative_to(home).as_posix().partition("/")[2]
        run = one.run
        if is_terminal:
            name, run = HASH.sub(r"\1", name), "/".join(parts_of(run))
        numbers = f"{one.bytes / 2**20:.1f}", f"{one.age_s / 3600:.1f}"
        user = f"{run} (in use)" if one.in_use else run
        table.add_row(one.kind, escape(name), *numbers, escape(user.strip()))
    # A pipe gets whole rows, however long.
    Console(width=None if is_terminal else 1000).print(table)


def print_cluster_jobs() -> None:
    """A table of this user's jobs in Slurm; nothing where there is no Slurm, or no job."""
    from zoerefine.lab.launch.queue.slurm.commands import SlurmError, list_jobs, missing_program

    if missing_program():
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    try:
        jobs = list_jobs()
    except SlurmError as error:
        warn(str(error))
        return
    table = Table(title="jobs in Slurm", title_justify="left")
    for column in ("job", "state", "time", "node", "run"):
        table.add_column(column, overflow="fold")
    for job in jobs:
        state = job.state.lower() + (f" ({job.reason})" if job.state == "PENDING" else "")
        cells = (job.id, state, job.elapsed, job.nodes, str(job.folder.parent))
        table.add_row(*map(escape, cells))
    if jobs:
        Console(width=None if sys.stdout.isatty() else 1000).print(table)
