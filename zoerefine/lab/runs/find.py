"""Finds run directories behind paths and globs. Loads nothing heavy, so that a listing is fast."""

import errno
import glob
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from zoerefine.base.run_dir import NODE_FOLDER

RUN_FILES = ("provenance.json", "config.yaml")  # a run has one of them
STUDY_FILES = ("trials", "study.db", "study.yaml", ".study.lock")
NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
IsRun = Callable[[str], bool]


def study_of(path: Path) -> Path | None:
    """The folder of the study that a run belongs to or is; None for another run."""
    places = [path, path.parent] + ([path.parent.parent] if path.parent.name == "trials" else [])
    return next((place for place in places if is_study(place)), None)


def is_study(folder: Path) -> bool:
    """Whether a folder has the files of a study."""
    return any(os.path.lexists(folder / name) for name in STUDY_FILES)


def find_runs(pattern: str) -> list[Path]:
    """Run directories behind a path or glob, see `runs_at`."""
    return [run for path in matches(pattern) for run in runs_at(path)]


def matches(pattern: str) -> list[Path]:
    """What a user named with a path or glob, without links."""
    return [Path(os.path.realpath(path)) for path in named_paths(pattern)]


def named_paths(pattern: str) -> list[str]:
    """The paths that a glob matches; the text itself where it exists, or where there are none.

    Names of runs may have brackets, which a glob reads as a choice of characters.
    """
    if os.path.lexists(pattern):
        return [pattern]
    return sorted(glob.glob(pattern)) or [pattern]


def runs_at(path: Path) -> list[Path]:
    """The run directory at a path, or those in it; for a study, its trials and its best run.

    Links that lead nowhere and folders without permission are returned too, so that they are
    listed. What is hidden, such as the trash, is not searched.
    """
    return [Path(run) for run in run_paths(str(path), lambda run: False)]


def run_paths(path: str, is_known: IsRun) -> list[str]:
    """The same as texts.

    Args:
        is_known: whether a path without links was found to be a run before, and its folder has
            not changed since. Its files are not looked for.
    """
    if is_known(path):
        return [path]
    path = resolved(path)
    if _is_unreadable(path):
        return [path]
    inner = list(_runs_in(resolved(f"{path}/trials"), is_known))
    inner += [best for best in [f"{path}/best"] if is_known(best) or _is_run(best)]
    if inner:
        return [resolved(run) for run in inner]
    if _is_run(path):
        return [path]
    folders = list(_runs_in(path, is_known))
    if not any(is_known(run) or _is_run(run) for run in folders):
        folders += [one for one in _folders_of_runs(path, is_known) if one not in folders]
    return [run for folder in folders for run in run_paths(folder, is_known)]


def resolved(path: str) -> str:
    """A path without the link at its end; the same text where there is none."""
    return os.path.realpath(path) if os.path.islink(path) else path


def _runs_in(folder: str, is_known: IsRun) -> Iterator[str]:
    """The runs and studies directly in a folder, and its unreadable entries."""
    if _is_unreadable(folder):
        yield folder
        return
    for path in _entries(folder):
        if is_known(path) or _is_run(path) or _is_study(path) or _is_unreadable(path):
            yield path


def _folders_of_runs(path: str, is_known: IsRun) -> Iterator[str]:
    """The folders in a folder such as `runs`, each with the runs of one name."""
    for one in _entries(path):
        if os.path.islink(one) or not os.path.isdir(one):
            continue
        if any(_runs_in(one, is_known)):
            yield one


def _entries(folder: str) -> list[str]:
    """The paths in a folder without hidden ones, sorted; none where it does not exist."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        if error.errno not in NO_FOLDER:
            raise
        return []
    return [f"{folder}/{name}" for name in names if not name.startswith(".")]


def _is_run(path: str) -> bool:
    has_files = any(os.path.lexists(f"{path}/{name}") for name in RUN_FILES)
    return has_files and not NODE_FOLDER.fullmatch(os.path.basename(path))


def _is_study(path: str) -> bool:
    """Whether a folder holds trials or a best run, perhaps pulled without the study's own files."""
    return os.path.isdir(f"{path}/trials") or _is_run(f"{path}/best")


def _is_unreadable(path: str) -> bool:
    """Whether there is something that cannot be read, or a folder that cannot be entered."""
    if os.access(path, os.R_OK | os.X_OK) or not os.path.lexists(path):
        return False
    return os.path.isdir(path) or not os.access(path, os.R_OK)
