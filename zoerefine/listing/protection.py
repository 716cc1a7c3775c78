"""Which runs are never removed, and why."""

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

from zoerefine.analysis.find_runs import named_paths, run_paths
from zoerefine.errors import UserError
from zoerefine.launch.executor.slurm_cluster import is_in_slurm
from zoerefine.listing.run_index import FRESH_S, find_rows
from zoerefine.listing.run_row import DAMAGED, RUNNING, RunRow, read_row
from zoerefine.listing.run_stamp import stamp_of
from zoerefine.locks import is_locked
from zoerefine.run_dir import LARGEST_DOCUMENT, RunDir

STUDY_FILES = ("trials", "study.db", "study.yaml", ".study.lock")
CONFIGS = ("config.yaml", "input.yaml", "study.yaml")
PATH_WORD = re.compile(r"[^\s'\"=,\[\]{}]*/[^\s'\"=,\[\]{}]*")


class Protection:
    """Why runs may not be removed. An empty reason allows it."""

    def __init__(self, patterns: Sequence[str], rows: Sequence[RunRow]) -> None:
        """Find what refers to runs.

        Args:
            patterns: the folders of runs, as the user named them.
            rows: all runs in them.
        """
        self.roots = {root for pattern in patterns for root in roots_of(pattern)}
        self.users: dict[str, set[str]] = {}  # `NAME/ID` or a digest: the paths of its users
        self.folders = {runs_root(Path(row.path)) for row in rows}
        self.stamps: dict[str, str] = {}
        self.stamps = self._changed()  # of before the runs are read
        self._add_rows([*rows, *rows_in(self.folders)])

    def look_again(self) -> None:
        """Find what refers to runs since the last look."""
        changed = self._changed()
        self._add_rows([read_row(path) for path in changed])
        self.stamps |= changed

    def _changed(self) -> dict[str, str]:
        """The runs that may have changed since the last look, with their stamps."""
        stamp = cache(stamp_of)

        def is_unchanged(path: str) -> bool:
            found, time_s = stamp(path)
            return found == self.stamps.get(path) and time_s + FRESH_S < time.time()

        runs = [run for folder in self.folders for run in run_paths(str(folder), is_unchanged)]
        return {run: stamp(run)[0] for run in runs if not is_unchanged(run)}

    def _add_rows(self, rows: Sequence[RunRow]) -> None:
        for row in rows:
            self._add(row.path, [*row.uses, *words_of_configs(Path(row.path))])
        for study in {study for row in rows if (study := study_of(Path(row.path)))}:
            self._add(str(study), words_of_configs(study))

    def _add(self, user: str, texts: Sequence[str]) -> None:
        for text in texts:
            for key in keys_of(text):
                self.users.setdefault(key, set()).add(user)

    def of_place(self, path: Path) -> str:
        """Why a run may not be removed for where it is."""
        if os.path.realpath(path) != str(path) or not any(map(path.is_relative_to, self.roots)):
            return "a link leads to it: name the path without links"
        return ""

    def of_run(self, row: RunRow) -> str:
        """Why a run may not be removed for what it is. Looks at its files of now."""
        path = Path(row.path)
        if row.state == DAMAGED:
            return f"it cannot be read: {row.reason}"
        if row.state == RUNNING:
            return "it is running"
        if any(map(is_locked, path.glob(f"node-*/{RunDir(path).lock_file.name}"))):
            return "another node of its job is running"
        if is_in_slurm(path):
            return "a job in Slurm will go on with it"
        if row.tags:
            return "it is tagged"
        if study_of(path):
            return "it belongs to a study"
        if has_files(RunDir(path).engine):
            return "an engine bundle was exported from it"
        if self._is_used(path):
            return "a study or another run uses its files"
        return ""

    def now(self, row: RunRow) -> str:
        """Why a run would stay."""
        in_use = is_locked(RunDir(Path(row.path)).lock_file)
        return (
            self.of_place(Path(row.path))
            or self.of_run(row)
            or ("a process is using it" if in_use else "")
        )

    def _is_used(self, path: Path) -> bool:
        keys = {f"{path.parent.name}/{path.name}"}
        if os.path.realpath(path.parent / "latest") == str(path):
            keys.add(f"{path.parent.name}/latest")
        with suppress(OSError, UnicodeError):
            keys |= set(RunDir(path).weights_digest_file.read_text()[:1000].split())
        return any(self.users.get(key, set()) - {str(path)} for key in keys)


def roots_of(pattern: str) -> Iterator[str]:
    """The folders below which a removal stays: those that were named without any link."""
    for path in named_paths(pattern):
        if os.path.realpath(path) == os.path.abspath(path):
            yield os.path.abspath(path)


def rows_in(folders: Iterable[Path]) -> Iterator[RunRow]:
    """The runs in folders that hold the runs of several names, such as `runs`."""
    for folder in folders:
        with suppress(UserError):  # no run is there
            yield from find_rows([str(folder)], keep_index=False)[0]


def runs_root(path: Path) -> Path:
    """The folder `runs` of runs/NAME/ID, also for a run of a study there."""
    study = study_of(path)
    return (study or path).parent.parent


def study_of(path: Path) -> Path | None:
    """The folder of the study that a run belongs to or is; None for another run."""
    places = [path, path.parent] + ([path.parent.parent] if path.parent.name == "trials" else [])
    for place in places:
        if any(os.path.lexists(place / name) for name in STUDY_FILES):
            return place
    return None


def words_of_configs(folder: Path) -> list[str]:
    """What looks like a path in the configs of a run or study, such as weights to start from.

    A training records what it starts from only when its data are packed.
    """
    words: list[str] = []
    for name in CONFIGS:
        with suppress(OSError, UnicodeError):
            if (folder / name).stat().st_size <= LARGEST_DOCUMENT:
                words += PATH_WORD.findall((folder / name).read_text(encoding="utf-8"))
    return words


def keys_of(text: str) -> Iterator[str]:
    """A digest, and each two consecutive parts of a path, such as `NAME/ID`."""
    yield text
    parts = [part for part in text.split("/") if part]
    for pair in pairwise(parts):
        yield "/".join(pair)


def has_files(folder: Path) -> bool:
    """Whether there is something in a folder, or it cannot be read."""
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True
