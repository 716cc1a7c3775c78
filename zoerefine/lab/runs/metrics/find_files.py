"""Finds the logs of a run, or of its workspace: files that may hold metrics, by their names."""

import os
import re
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path

from zoerefine.lab.runs.metrics import csv_logs, text_logs

EVENT_FILES = "*.tfevents.*"  # TensorBoard's
OWN_FOLDERS = {"engine", "report", "checkpoints"}  # of a run: our own, without metrics
RUN_FILE = "provenance.json"  # in the folder of every run: the runs inside a study are not its own
EVENT_NAME = re.compile(translate(EVENT_FILES))
STORE_SUFFIXES = {".wandb", ".db", ".sqlite", ".sqlite3"}  # of W&B's logs, MLflow's databases


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
    own = OWN_FOLDERS if os.path.exists(f"{root}/{RUN_FILE}") else ()
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            skipped = entry.name in ("__pycache__", *own) or entry.name.startswith(".")
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


def kind_of(path: Path) -> str:
    """What a file is by its name; empty for one that is no log."""
    name, suffix = path.name, path.suffix
    if EVENT_NAME.fullmatch(name):
        return "events"
    if suffix.lower() in csv_logs.CSV_SUFFIXES:
        return "table"
    if text_logs.JSON_FILES.fullmatch(name):
        is_same = name in text_logs.AS_PROGRESS and path.with_name("progress.csv").is_file()
        return "" if is_same else "rows"
    return "store" if name == "meta.yaml" or suffix in STORE_SUFFIXES else ""


def place_of_rows(path: Path, place: Path) -> str:
    """The place of a JSON log: its folder, and what stands before `metrics` or `results` in its
    name; of Sacred the folder with the folders of all attempts."""
    if path.suffix == ".jsonl":
        return str(place.with_suffix(""))
    if (path.parent / text_logs.SACRED_RUN).is_file():
        return str(place.parent.parent)
    found = text_logs.JSON_FILES.fullmatch(path.name)
    return str(place.parent / ((found and found["part"]) or ""))
