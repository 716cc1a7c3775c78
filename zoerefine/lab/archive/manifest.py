"""The manifest of an archive: the run that it holds, and path, size and digest of every file.

A manifest that was read is not trusted: every field is checked before any of it is used.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import LARGEST_DOCUMENT, LAST_TIME_S, LATEST, STATES

MANIFEST = "manifest.json"
KIND, SCHEMA = "zoerefine run archive", 1
SHA256 = re.compile(r"[0-9a-f]{64}")
LAST_NS = round(LAST_TIME_S * 1e9)  # since the epoch; times before it are negative
MAX_BYTES = 2**63
MAX_PARTS = 100  # folders of a path
MAX_PATH = 4096  # bytes, with a NUL at the end
MAX_NAME_PART = 240  # bytes; `pull` makes a folder of a slightly longer name
MAX_FACT = 4096  # characters
# The runs inside a study's folder, by their paths there: lab/search/study/trials.py and best.py.
STUDY_PART = re.compile(r"trials/[0-9]+|(best|pareto-[0-9]+)(-seed[0-9]+)?")


class DamagedManifestError(ValueError):
    """Why a text is no manifest of an archive."""


@dataclass(frozen=True)
class ArchivedFile:
    """A file of a run.

    Attributes:
        path: relative to the run's folder, with slashes.
        bytes: its size.
        sha256: the digest of its content, in hex.
        modified_ns: when it was written, in nanoseconds since the epoch. The newest engine bundle
            of a run counts, so times are kept.
        executable: whether its owner may execute it.
    """

    path: str
    bytes: int
    sha256: str
    modified_ns: int
    executable: bool


@dataclass(frozen=True)
class Manifest:
    """What an archive holds.

    Attributes:
        name: the run's path in its runs folder, such as `demo/b77d9226-3c3c1f53`.
        state: one of `run_dir.STATES`.
        identity: facts of provenance.json that say which run this is, and of a finished one when it
            ended: another machine has runs of the same commit and config, with other data.
        files: every regular file, sorted by path.
        left_out: paths that are not archived, since they are links or no files.
    """

    name: str
    state: str
    identity: Mapping[str, str]
    files: tuple[ArchivedFile, ...]
    left_out: tuple[str, ...] = ()

    @property
    def objects(self) -> dict[str, ArchivedFile]:
        """One file for each content, by its digest."""
        return {file.sha256: file for file in self.files}

    def encoded(self) -> bytes:
        """The manifest as JSON. File names that are not UTF-8 are written as lone surrogates."""
        document = {"kind": KIND, "schema": SCHEMA, **asdict(self)}
        return json.dumps(document, indent=1).encode()


def read_manifest(data: bytes, place: str) -> Manifest:
    """Decode and check a manifest. Raises `UserError` with its place where it is damaged."""
    try:
        return decode(data)
    except DamagedManifestError as error:
        line = f"{place} is not the manifest of an archive, or is damaged: {error}"
        raise UserError(line) from None


def decode(data: bytes) -> Manifest:
    """Decode and check a manifest. Raises `DamagedManifestError`."""
    require(len(data) <= LARGEST_DOCUMENT, f"it is larger than {LARGEST_DOCUMENT >> 20} MiB")
    try:
        return manifest_of(json.loads(data))
    except RecursionError:
        raise DamagedManifestError("it is nested too deeply") from None
    except ValueError as error:  # of json
        raise DamagedManifestError(str(error)) from None


def manifest_of(value: Any) -> Manifest:
    """A decoded JSON value as a manifest. Raises `DamagedManifestError`."""
    require(isinstance(value, dict), "it is no mapping")
    require(value.get("kind") == KIND, f"its kind is not {KIND!r}")
    require(value.get("schema") == SCHEMA, f"its schema is not {SCHEMA}")
    name, identity, files = value.get("name"), value.get("identity"), value.get("files")
    left_out = value.get("left_out")
    require(not name_fault(name), f"its run's name {name!r:.80}: {name_fault(name)}")
    require(value.get("state") in STATES, "its state is unknown")
    require(isinstance(identity, dict), "its identity is no mapping")
    texts = f"texts of up to {MAX_FACT} characters"
    require(all(map(is_fact, identity.values())), f"its identity holds other things than {texts}")
    require(isinstance(files, list), "its files are no list")
    require(isinstance(left_out, list) and all(map(is_fact, left_out)), "left_out is no list")
    archived = tuple(file_of(file) for file in files)
    require_separate([file.path for file in archived])
    require_one_size(archived)
    return Manifest(name, value["state"], identity, archived, tuple(left_out))


def file_of(value: Any) -> ArchivedFile:
    """A row of the manifest. Raises `DamagedManifestError`."""
    require(isinstance(value, dict), "a file is no mapping")
    path, digest = value.get("path"), value.get("sha256")
    shown = f"its file {path!r:.80}"
    require(not path_fault(path), f"{shown}: {path_fault(path)}")
    require(is_whole(value.get("bytes"), 0, MAX_BYTES), f"{shown} has no size")
    is_time = is_whole(value.get("modified_ns"), 1 - LAST_NS, LAST_NS)
    require(is_time, f"{shown} has no time, or one out of range")
    require(isinstance(value.get("executable"), bool), f"{shown}: executable is no truth value")
    require(isinstance(digest, str) and SHA256.fullmatch(digest), f"{shown} has no SHA-256")
    keys = ("path", "bytes", "sha256", "modified_ns", "executable")
    return ArchivedFile(**{key: value[key] for key in keys})


def path_fault(path: Any) -> str:
    """Why a value cannot be the relative path of a file inside a folder; empty if it can."""
    if not isinstance(path, str) or not path:
        return "it is no path"
    if "\0" in path:
        return "it holds a NUL"
    parts = path.split("/")
    if len(parts) > MAX_PARTS:
        return f"it has more than {MAX_PARTS} parts"
    if any(part in ("", ".", "..") for part in parts):
        return "it is absolute, or has an empty part, . or .."
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "the system cannot encode it"
    if len(encoded) >= MAX_PATH:
        return "it is too long"
    return ""


def name_fault(name: Any) -> str:
    """Why a value cannot be the name of an archived run; empty if it can."""
    if fault := path_fault(name):
        return fault
    parts = name.split("/")
    inner = "/".join(parts[2:])
    if len(parts) < 2 or not (inner == "" or STUDY_PART.fullmatch(inner)):
        return "it is neither NAME/ID nor that of a trial or best run of a study"
    if any(len(os.fsencode(part)) > MAX_NAME_PART for part in parts):
        return f"a part is longer than {MAX_NAME_PART} bytes"
    if not name.isprintable() or any(part[0] in ".-" for part in parts):
        return "a part starts with a dot or a dash, or cannot be printed"
    if any(text in name for text in ("*", "?", "[", "::")):  # no address may
        return "it holds *, ?, [ or ::"
    if LATEST in parts:
        return f"{LATEST} is the name of a link"
    return ""


def require_separate(paths: list[str]) -> None:
    """Raises `DamagedManifestError` for a path that is there twice, or is also a folder."""
    known = set(paths)
    require(len(known) == len(paths), "a path is there twice")
    for path in paths:
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        clash = next((one for one in above if one in known), None)
        require(clash is None, f"{clash!r:.80} is a file and a folder")


def require_one_size(files: tuple[ArchivedFile, ...]) -> None:
    """Raises `DamagedManifestError` where one content has two sizes."""
    sizes: dict[str, int] = {}
    for file in files:
        same = sizes.setdefault(file.sha256, file.bytes) == file.bytes
        require(same, f"the size of {file.path!r:.80} contradicts that of another file")


def is_fact(value: Any) -> bool:
    """Whether a value is a text of a moderate length."""
    return isinstance(value, str) and len(value) <= MAX_FACT


def is_whole(value: Any, first: int, end: int) -> bool:
    """Whether a value is a whole number from `first` to below `end`."""
    return isinstance(value, int) and not isinstance(value, bool) and first <= value < end


def require(fulfilled: object, fault: str) -> None:
    """Raises `DamagedManifestError` with the fault unless the condition is fulfilled."""
    if not fulfilled:
        raise DamagedManifestError(fault)
