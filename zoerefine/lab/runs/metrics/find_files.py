"""Finds the files of a run, or of its workspace, that may hold metrics."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

EVENT_FILES = "*.tfevents.*"  # TensorBoard's
# Folders that hold no metrics of the run itself.
SKIPPED = {"__pycache__", "engine", "report", "checkpoints"}
RUN_FILE = "provenance.json"  # in the folder of every run: the runs inside a study are not its own


def find_files(root: Path, since: float = 0.0) -> Iterator[Path]:
    """The regular files below a folder; links are not followed.

    Hidden folders, and runs inside this one, are left out. Names with numbers are in the order of
    the numbers.

    Args:
        since: seconds since the epoch; only files that were written later.
    """
    for path, _ in files_with_stats(str(root), since):
        yield Path(path)


def files_with_stats(root: str, since: float = 0.0) -> Iterator[tuple[str, os.stat_result]]:
    """The same with the system's facts about each file."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: natural_order(entry.name))
    except OSError:  # removed, or not readable
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            skipped = entry.name in SKIPPED or entry.name.startswith(".")
            if not skipped and not os.path.exists(f"{entry.path}/{RUN_FILE}"):
                yield from files_with_stats(entry.path, since)
        elif entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # removed since it was listed
                continue
            if status.st_mtime >= since:
                yield entry.path, status


def natural_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in names by size: version_2 before version_10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
