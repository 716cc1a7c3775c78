"""Which runs are never removed, and why: by what is recorded of them and of others."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from zoerefine.base.config_roles import WEIGHT_KEYS
from zoerefine.base.errors import UserError
from zoerefine.base.files.file_lock import is_locked
from zoerefine.base.run_dir import LATEST, RunDir, require_file
from zoerefine.lab.launch.queue.slurm.submission import is_in_slurm
from zoerefine.lab.launch.workspace.workspace import read_inputs
from zoerefine.lab.listing.table import DAMAGED, RUNNING, RunRow
from zoerefine.lab.runs.find import named_paths, runs_at, study_of
from zoerefine.lab.runs.record import read_tree

NAMES_WEIGHTS = re.compile(r"^\s+(?:FROM|PRETRAINED): (?!''$)", re.MULTILINE)


class Protection:
    """Why runs may not be removed. An empty reason allows it.

    Attributes:
        users: the runs and studies that start from weights, by their digest or a path to them.
        readers: the runs that have files as inputs, by the folders that these are in.
        unreadable: the runs and studies of which it is not known what they start from.
    """

    def __init__(self, patterns: Sequence[str], rows: Sequence[RunRow]) -> None:
        """Read what all runs and studies beside some runs start from, and look for links.

        Args:
            patterns: the folders of runs, as the user named them.
            rows: all runs in them.
        """
        self.roots = {root for pattern in patterns for root in roots_of(pattern)}
        paths = [Path(row.path) for row in rows]
        folders = {(study_of(path) or path).parent.parent for path in paths}
        runs = [run for folder in folders for run in runs_at(folder)]
        self.users: dict[str, set[Path]] = {}
        self.readers: dict[str, set[Path]] = {}
        self.unreadable: list[Path] = []
        for user in {*runs, *filter(None, map(study_of, runs))}:
            try:
                names, folders_read = weights_of(user), input_folders(user)
            except (UserError, OSError, UnicodeDecodeError):
                self.unreadable.append(user)
                continue
            for name in names:
                self.users.setdefault(name, set()).add(user)
            for name in folders_read:
                self.readers.setdefault(name, set()).add(user)
        places = folders | {run.parent for run in runs}
        self.links = {
            inside: link for place in places for link in links_in(place)
            for inside in with_folders_around(link)
        }  # fmt: skip

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
        if row.path in self.links:
            return f"the link {self.links[row.path]} leads to it"
        try:
            names = {str(path), *RunDir(path).weights_digests()}
        except UserError as error:
            return f"it cannot be read: {error}"
        if self.readers.get(row.path, set()) - {path}:
            return "another run has its files as --input"
        is_used = any(self.users.get(name, set()) - {path} for name in names)
        return "another run or a study starts from its weights" if is_used else ""

    def now(self, row: RunRow) -> str:
        """Why a run would stay."""
        if reason := self.of_place(Path(row.path)) or self.of_run(row):
            return reason
        return "a process is using it" if is_locked(RunDir(Path(row.path)).lock_file) else ""


def weights_of(user: Path) -> set[str]:
    """What a run or study starts from: digests of weights, their paths, and the folders around.

    A training records both when its data are packed; its config has the path before.
    Raises `UserError`, `OSError` or `UnicodeDecodeError` where it cannot be read.
    """
    os.listdir(user)
    run = RunDir(user)
    facts = run.recorded()
    found = [facts[fact] for *_, fact in WEIGHT_KEYS if isinstance(facts.get(fact), dict)]
    if run.config_file.exists():
        require_file(run.config_file)
        if NAMES_WEIGHTS.search(run.config_file.read_text("utf-8")):
            groups = read_tree(run.config_file)
            found += [{"path": groups[g].get(key)} for g, key, _ in WEIGHT_KEYS
                      if isinstance(groups.get(g), dict)]  # fmt: skip
    paths = {one for weights in found if isinstance(one := weights.get("path"), str) and one}
    digests = {one for weights in found if isinstance(one := weights.get("sha256"), str)}
    return digests.union(*map(with_folders_around, paths))


def input_folders(user: Path) -> set[str]:
    """The folders that a run's input files are in, and those around. Raises as `weights_of`."""
    inputs = read_inputs(RunDir(user))
    places = {os.path.dirname(f"{root}/{name}") for root, names in inputs.items() for name in names}
    return set().union(*map(with_folders_around, places))


def with_folders_around(path: str) -> set[str]:
    """Where a path leads, and the folders that this is in."""
    place = Path(os.path.realpath(path))
    return {str(place), *map(str, place.parents)}


def links_in(folder: Path) -> Iterator[str]:
    """The links directly in a folder, without our own link to its latest run."""
    with suppress(OSError), os.scandir(folder) as entries:
        for one in entries:
            if one.is_symlink() and not (
                one.name == LATEST and Path(os.path.realpath(one.path)).parent == folder
            ):
                yield one.path


def roots_of(pattern: str) -> Iterator[str]:
    """The folders below which a removal stays: those that were named without any link."""
    for path in named_paths(pattern):
        if os.path.realpath(path) == os.path.abspath(path):
            yield os.path.abspath(path)


def has_files(folder: Path) -> bool:
    """Whether there is something in a folder, or it cannot be read."""
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True
