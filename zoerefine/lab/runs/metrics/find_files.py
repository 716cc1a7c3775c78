"""Finds the logs of a run, or of its workspace: files that may hold metrics, by their names.

A log's place is its path without what differs each time a script starts, and on each machine.
"""

import os
import re
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path, PurePosixPath

from zoerefine.lab.runs.metrics import csv_logs, text_logs
from zoerefine.lab.runs.metrics.metric_log import Kind, MetricLog

EVENT_FILES = "*.tfevents.*"  # TensorBoard's
OWN_FOLDERS = {"engine", "report", "checkpoints"}  # of a run: our own, without metrics
RUN_FILE = "provenance.json"  # in the folder of every run: the runs inside a study are not its own
EVENT_NAME = re.compile(translate(EVENT_FILES))
STORE_SUFFIXES = {".wandb", ".db", ".sqlite", ".sqlite3"}  # of W&B's logs, MLflow's databases
DAY, MONTH, YEAR = r"(?:[12]\d|3[01]|0?[1-9])", r"(?:1[0-2]|0?[1-9])", r"(?:19|20)\d\d"
MMDD = r"(?:1[0-2]|0[1-9])(?:[12]\d|3[01]|0[1-9])"
CLOCK = r"(?:\d\d?[-_.:h]\d\d?[-_.:m]\d\d?s?|\d\d[-_.:h]\d\d|\d{6})(?:\.\d{3,9}|[-_]\d{6})?"
NAMED_DATE = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\d\d?_\d\d-\d\d-\d\d"
# A date, with or without the time of day, or seconds since 1970, anywhere in a name.
TIME = re.compile(
    rf"""(?<![\d.]) (?:
      (?: {YEAR} (?P<a>[-_.]) {MONTH} (?P=a) {DAY}  # 2026-01-31
        | {DAY} (?P<b>[-_.]) {MONTH} (?P=b) {YEAR} | {MONTH} (?P<c>[-_.]) {DAY} (?P=c) {YEAR}
        | {YEAR} {MMDD}  # 20260131
      ) (?: [-_T\ ,.@]+ {CLOCK} | \d{{6}})?
      | \d\d {MMDD} [-_T] \d{{6}}  # 260131_123456
      | 1[4-9]\d{{8}} (?: \.\d+ | \d{{3}})?
    ) (?!\d) | {NAMED_DATE} (?!\d)  # Jan31_12-34-56: TensorBoard's""",
    re.IGNORECASE | re.VERBOSE,
)
# Parts of a path that differ each time a script starts: version_3, attempt-2, a time, also without
# the year (Hydra: 12-34-56). And runs of W&B, and the checkpoints of Hugging Face's Trainer.
EACH_TIME = re.compile(
    rf"""version_\d+ | attempt\W?\d+ | checkpoint-\d+ | (?:offline-)?run-\d{{8}}_\d{{6}}-\w+
    | [-_.]* (?:{TIME.pattern}
    ) [-_.]* | (?:[01]\d|2[0-3])(?:-[0-5]\d){{2}}
    | (?:{MMDD} | {MONTH} [-_.] {DAY}) [-_] {CLOCK}""",
    re.IGNORECASE | re.VERBOSE,
)
NUMBERED_FOLDER = re.compile(r"^(exp|train)\d+$")  # of each start of YOLO
MACHINE = re.compile(rf"{NAMED_DATE}_([^/]*)", re.IGNORECASE)  # and a comment behind it


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


def lasting_place(place: str) -> str:
    """A place without what differs each time a script starts."""
    parts = (part for part in Path(place).parts if not EACH_TIME.fullmatch(part))
    lasting = (NUMBERED_FOLDER.sub(r"\1", TIME.sub("time", part)) for part in parts)
    return str(PurePosixPath(*lasting))


def place_on_any_machine(log: MetricLog) -> str:
    """A log's place without the machine's name, which TensorBoard puts into a folder's.

    The name of the event file has it, too: `events.out.tfevents.<time>.<machine>.<process>.0`.
    """
    found = MACHINE.search(log.place)
    if found is None or log.kind is not Kind.EVENTS:
        return log.place
    machine = next(iter(log.path.glob(EVENT_FILES))).name.split(".", 4)[-1]
    same = len(os.path.commonprefix([found[1], machine]))  # noqa: RUF071
    return log.place[: found.start(1)] + log.place[found.start(1) + same :]


def place_of_rows(path: Path, place: Path) -> str:
    """The place of a JSON log: its folder, and what stands before `metrics` or `results` in its
    name; of Sacred the folder with the folders of all attempts."""
    if path.suffix == ".jsonl":
        return str(place.with_suffix(""))
    if (path.parent / text_logs.SACRED_RUN).is_file():
        return str(place.parent.parent)
    found = text_logs.JSON_FILES.fullmatch(path.name)
    return str(place.parent / ((found and found["part"]) or ""))
