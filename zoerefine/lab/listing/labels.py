"""Tags, a note and the archived mark of a run: `.labels.json` in its folder."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import HALF_WRITTEN, remove_half_written, write_json
from zoerefine.base.files.file_lock import lock
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.runs.find import RUN_FILES

LABELS_FILE, LABELS_LOCK = ".labels.json", ".labels.lock"
LONGEST_TAG, LONGEST_NOTE = 40, 500  # characters


@dataclass(frozen=True)
class Labels:
    """What a user wrote about a run."""

    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False


def read_labels(folder: Path) -> Labels:
    """The labels of a run. Raises `UserError` where the file is damaged."""
    path = folder / LABELS_FILE
    try:
        found = RunDir(folder).read_json(path) if path.exists() else {}
        tags, note = found.get("tags", []), found.get("note", "")
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in [*tags, note]):
            raise UserError(f"{path} is damaged: tags or note are no texts")
        return Labels(tuple(tags), note, found.get("archived") is True)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def change_labels(folder: Path, change: Callable[[Labels], Labels]) -> None:
    """Replace the labels of a run, also while it is running.

    Raises `UserError` where the run was removed meanwhile.
    """
    with lock(folder / LABELS_LOCK):
        if not is_run_still(folder):
            raise UserError(f"{folder} is no longer a run: it was removed")
        remove_half_written(folder.glob(HALF_WRITTEN), re.escape(LABELS_FILE))
        old = read_labels(folder)
        new = change(old)
        if new != old:
            write_json(folder / LABELS_FILE, asdict(new))


def is_run_still(folder: Path) -> bool:
    """Whether a folder is a run, asked while its locks are held.

    Where the run was renamed meanwhile, taking a lock has made an empty folder again. It is
    removed.
    """
    if any((folder / name).exists() for name in RUN_FILES):
        return True
    for name in (LABELS_LOCK, RunDir(folder).lock_file.name):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
    return False


def with_tags(labels: Labels, add: list[str], remove: list[str]) -> Labels:
    """The labels with more and fewer tags, sorted."""
    return replace(labels, tags=tuple(sorted({*labels.tags, *add} - set(remove))))


def check_tag(tag: str) -> None:
    """Raises `UserError` where a text cannot be a tag."""
    if not 0 < len(tag) <= LONGEST_TAG or not tag.isprintable() or set(tag) & set(" ,"):
        raise UserError(
            f"{tag[:80]!r} cannot be a tag: give up to {LONGEST_TAG} printable characters without "
            "space or comma"
        )


def check_note(note: str) -> None:
    """Raises `UserError` where a text cannot be a note."""
    if len(note) > LONGEST_NOTE or not note.isprintable():
        raise UserError(f"the note must be one line of at most {LONGEST_NOTE} printable characters")
