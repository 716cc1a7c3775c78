"""Finds the files of a run, or of its workspace, that may hold metrics."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

EVENT_FILES = "*.tfevents.*"  # TensorBoard's
# Folders that hold no metrics of the run itself.
SKIPPED = {"__pycache__", "engine", "report", "checkpoints"}
RUN_FILE = "provenance.json"  # in the folder of every run: the runs inside a study are not its own


def find_files(root: Path, since: float = 0.0) -> Iterator[Path]:
    """The regular files below a folder, in the order of their names; links are not followed.

    Hidden folders, and runs inside this one, are left out.

    Args:
        since: seconds since the epoch; only files that were written later.
    """
    for folder, folders, files in os.walk(root):
        inner = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        folders[:] = sorted(
            (name for name in inner if not os.path.exists(Path(folder, name, RUN_FILE))),
            key=natural_order,
        )
        for name in sorted(files, key=natural_order):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:  # removed since it was listed
                continue
            if stat.S_ISREG(status.st_mode) and status.st_mtime >= since:
                yield path


def natural_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in names by size: version_2 before version_10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
