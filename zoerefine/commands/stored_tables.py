"""Tables of what a launcher keeps on disk and of jobs in Slurm; imported late, since rich is."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zoerefine.base.progress import warn
from zoerefine.lab.launch.housekeeping import StoredFolder
from zoerefine.lab.launch.queue.slurm.commands import SlurmError, list_jobs, missing_program
from zoerefine.lab.listing.row import parts_of

HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{32}\b")  # of a commit, in the name of a workspace


def print_stored(folders: Sequence[StoredFolder], what: str, home: Path) -> None:
    """A table of what is kept on disk, or was removed; a terminal gets short hashes and names."""
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
    if missing_program():
        return
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
