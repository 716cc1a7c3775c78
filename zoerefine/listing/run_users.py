"""What uses runs: other runs and studies in the same folder of runs, and links to runs."""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from zoerefine.analysis.find_runs import run_paths
from zoerefine.errors import UserError
from zoerefine.listing.run_index import FRESH_S
from zoerefine.listing.run_names import LATEST, RunNames, key_of
from zoerefine.listing.run_stamp import stamp_of
from zoerefine.run_dir import RunDir, require_file

STUDY_FILES = ("trials", "study.db", "study.yaml", ".study.lock")
# Configs of any kind, and the record of command lines and weights.
TEXT_FILE = re.compile(r"(?:config|input|study|space|best|provenance)(?:\.(?!db)[^.]*)?")
STARTED_IN = re.compile(r'"(?:caller|config)": *("(?:[^"\\]|\\.)*")')  # in provenance.json
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")  # SHA-256


class RunUsers:
    """Who uses which runs. It is looked up when it is made, and again by `look`."""

    def __init__(self, folders: Iterable[Path], runs: Iterable[str]) -> None:
        """Look up the users of runs.

        Args:
            folders: the folders of runs, such as `runs`. All runs in them count as users.
            runs: the paths of the runs whose users are asked for.
        """
        self.folders = set(folders)
        self.names = RunNames(runs)
        self.users: dict[str, set[str]] = {}  # by NAME/ID or the digest of weights
        self.links: dict[str, str] = {}  # by NAME/ID: a link that leads to the run
        self.closed: list[str] = []  # may not be read: what they use is not known
        self.stamps: dict[str, str] = {}
        self.look()

    def look(self) -> None:
        """Read the runs and studies that are new or have changed, and look for links."""
        changed = self._changed()  # with the stamps of before they are read
        for user in changed:
            self._read(user)
        self.stamps |= changed
        places = {*map(str, self.folders), *map(os.path.dirname, self.stamps)}
        links = [link for place in places for link in links_in(place)]
        self.links = {
            key: link for link in links for key in self.names.named_in(os.path.realpath(link))
        }

    def of(self, path: Path) -> str:
        """Why a run is needed by something else; empty where it is not."""
        key = key_of(str(path))
        if key in self.links:
            return f"the link {self.links[key]} leads to it"
        keys = {key}
        if os.path.realpath(path.parent / LATEST) == str(path):
            keys.add(key_of(str(path.parent / LATEST)))
        with suppress(OSError, UnicodeError):
            keys |= set(RunDir(path).weights_digest_file.read_text()[:1000].split())
        if any(self.users.get(key, set()) - {str(path)} for key in keys):
            return "a study or another run uses its files"
        return ""

    def _changed(self) -> dict[str, str]:
        """The runs and studies that may have changed since the last look, with their stamps."""
        stamp = cache(stamp_of)

        def is_unchanged(path: str) -> bool:
            found, time_s = stamp(path)
            return found == self.stamps.get(path) and time_s + FRESH_S < time.time()

        runs = [run for folder in self.folders for run in run_paths(str(folder), is_unchanged)]
        users = dict.fromkeys([*runs, *(study for run in runs if (study := study_above(run)))])
        return {user: stamp(user)[0] for user in users if not is_unchanged(user)}

    def _read(self, user: str) -> None:
        if not os.access(user, os.R_OK | os.X_OK):
            self.closed.append(user)
        texts = list(texts_of(user))
        above = self._above(user, texts)
        for text in texts:
            for key in {*self.names.named_in(text, above), *DIGEST.findall(text)}:
                self.users.setdefault(key, set()).add(user)

    def _above(self, user: str, texts: list[str]) -> set[tuple[str, int]]:
        """Where relative paths of a run may start, as `RunNames.named_in` takes it."""
        real = {Path(user)}
        for word in (word for text in texts for word in STARTED_IN.findall(text)):
            with suppress(ValueError):  # it is no path
                place = json.loads(word, strict=False)
                real |= {Path(os.path.realpath(one)) for one in (place, os.path.dirname(place))}
        inside = [p.relative_to(f).parts for p in real for f in self.folders if f in p.parents]
        return {(parts[0], len(parts) - 1) for parts in inside}


def study_above(run: str) -> str:
    """The folder of the study that a trial or a best run belongs to; empty for another run."""
    folder, name = os.path.split(run)
    if os.path.basename(folder) == "trials":
        return os.path.dirname(folder)
    return folder if name == "best" and is_study(folder) else ""


def is_study(folder: str) -> bool:
    """Whether a folder has the files of a study."""
    return any(os.path.lexists(f"{folder}/{name}") for name in STUDY_FILES)


def texts_of(user: str) -> Iterator[str]:
    """What may name other runs: the texts of a run or study, and where the links in it lead.

    A training records what it starts from only when its data are packed; its config has it before.
    """
    waiting = [user]
    while waiting:
        with suppress(OSError), os.scandir(folder := waiting.pop()) as entries:
            for one in entries:
                if one.is_symlink():
                    yield os.path.realpath(one.path)
                elif one.is_dir() and one.path != f"{user}/trials":  # these are runs themselves
                    waiting.append(one.path)
                if folder == user and TEXT_FILE.fullmatch(one.name):
                    with suppress(OSError, UserError):
                        require_file(Path(one.path))
                        yield Path(one.path).read_bytes().decode("utf-8", "surrogateescape")


def links_in(folder: str) -> Iterator[str]:
    """The links directly in a folder, without our own link to its latest run."""
    with suppress(OSError), os.scandir(folder) as entries:
        for one in entries:
            if one.is_symlink():
                target = os.path.realpath(one.path)
                if one.name != LATEST or os.path.dirname(target) != os.path.realpath(folder):
                    yield one.path
