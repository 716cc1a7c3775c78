"""The packed cache: every frame decoded and resized once, one page-aligned record a frame.

    <root>/<digest>/cache.json     the header: contents, settings, sources
    <root>/<digest>/frames.npy     a row a frame: clip, name, state, fingerprint, record's digest
    <root>/<digest>/records.bin    record i at i * stride: zoe, depth, rgb, objects

The folder's name is the digest of sources (clips; files: fields, names, sizes, times) and settings.
Opening a cache reads the header and the table, and maps the records.
`verification.py` compares records with their digests. `pack.py` makes caches.
"""

import hashlib
import json
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.depth_limits import FARTHEST_M
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_file, digest_json, write_json
from zoerefine.base.machine.memory import PAGE, aligned_empty, free_memory
from zoerefine.depth.data.dataset import Clip
from zoerefine.depth.data.frame_names import follows
from zoerefine.depth.data.metric_points import MAX_POINTS
from zoerefine.depth.data.networks.pseudo_source import UNKNOWN, PseudoSource, source_from_json

SCHEMA = 5
OWN_DIGEST = "header_sha256"
TABLE_DIGEST = "frames_sha256"


def write_header(folder: Path, header: dict[str, Any]) -> None:
    """Write cache.json beside a frames.npy that is complete and on the disk."""
    header = {"schema": SCHEMA} | header | {TABLE_DIGEST: digest_file(folder / "frames.npy")}
    write_json(folder / "cache.json", header | {OWN_DIGEST: digest_json(header)})


def read_header(folder: Path) -> dict[str, Any]:
    """The contents of cache.json.

    Raises `UserError` where it is missing, damaged in any value, or of another version.
    """
    try:
        header = json.loads((folder / "cache.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is no packed cache: make one with zoerefine data pack") from None
    except OSError as error:
        raise UserError(f"{folder}/cache.json cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{folder}/cache.json is damaged ({error}): delete {folder}") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise UserError(f"{folder} is of another version (schema {SCHEMA} is needed): delete it")
    stored = header.pop(OWN_DIGEST, "")
    if digest_json(header) != stored:
        raise UserError(f"{folder}/cache.json differs from its own digest: delete {folder}")
    return header


WORD_BYTES = 8  # rows are gathered as int64 words, which np.take copies fastest
TO_DO, PACKED, BROKEN = 0, 1, 2  # a frame's state
SOURCES = ["clip", "name", "fingerprint"]  # columns of the frame table that packing does not change


@dataclass(frozen=True)
class Field:
    """A field of a record: where it lies in the record, and its array's type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape))

    def view(self, record: np.ndarray) -> np.ndarray:
        """This field of a record, uint8 [stride], as an array that shares its memory."""
        return record[self.offset : self.offset + self.nbytes].view(self.dtype).reshape(self.shape)


def record_fields(height: int, width: int, points: bool = False) -> tuple[Field, ...]:
    """The fields of a record, with metric points where the data have them.

    Fields with the most bits a value come first, so they are aligned at any size.
    """
    fields: list[Field] = []
    offset = 0
    for name, dtype, shape in (
        *([("points", "float32", (MAX_POINTS, 4))] if points else []),
        ("zoe", "uint16", (height, width)),
        ("depth", "uint16", (height, width)),
        ("rgb", "uint8", (height, width, 3)),
        ("objects", "uint8", (height, width)),
    ):
        fields.append(Field(name, dtype, shape, offset))
        offset += fields[-1].nbytes
    return tuple(fields)


def record_stride(fields: tuple[Field, ...]) -> int:
    """Bytes from a record to the next: whole pages, so reading one touches no neighbour's page."""
    used = fields[-1].offset + fields[-1].nbytes
    return -(-used // PAGE) * PAGE


def frame_dtype(name_bytes: int) -> np.dtype[Any]:
    """A row of frames.npy; names are UTF-8 of at most `name_bytes` bytes.

    `fingerprint` changes with the frame's source files, `digest` begins its record's SHA-256.
    """
    return np.dtype([("clip", "<i4"), ("state", "u1"), ("fingerprint", "<u8"), ("digest", "V16"),
                     ("name", f"S{name_bytes}")])  # fmt: skip


def has_sources_of(frames: np.ndarray, expected: np.ndarray) -> bool:
    """Whether a frame table lists exactly these source files."""
    same = frames.dtype == expected.dtype
    return same and np.array_equal(frames[SOURCES], expected[SOURCES])


def record_digest(record: Any) -> bytes:
    """The first 16 bytes of a record's SHA-256."""
    return hashlib.sha256(record).digest()[:16]


def note_record(frames: np.ndarray, index: int, record: np.ndarray, state: int) -> None:
    """Enter a written record into the frame table.

    The state is written last: a kill in between leaves the frame to be packed again.
    """
    frames["digest"][index] = np.void(record_digest(record))
    frames["state"][index] = state


class Records(ABC):
    """A source of records."""

    @abstractmethod
    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        """Write the records of `index`, int64 [n], to `out`, int64 [n, stride / 8]."""

    def read_ahead(self, index: np.ndarray) -> None:  # noqa: B027
        """Start reading records, int64 [n], that will be gathered soon."""


class MappedRecords(Records):
    """Records of a file, mapped and shared by all processes; `descriptor` reads the same file."""

    def __init__(self, path: Path, count: int, stride: int) -> None:
        with open(path, "rb") as file:
            self.rows = np.memmap(file, np.int64, "r", shape=(count, stride // WORD_BYTES))
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        self._path = path
        self._fits_in_memory = self.rows.nbytes < free_memory()
        self._unread = count if hasattr(os, "posix_fadvise") else 0

    def read_ahead(self, index: np.ndarray) -> None:
        # A page fault reads little and waits; this advice lets the disk read many records at once.
        # Records that fit in memory stay there: advice for them would cost a tenth of the speed.
        if self._unread <= 0:
            return
        stride = self.rows.shape[1] * WORD_BYTES
        for i in index.tolist():
            os.posix_fadvise(self.descriptor, i * stride, stride, os.POSIX_FADV_WILLNEED)
        if self._fits_in_memory:
            self._unread -= len(index)

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        if os.fstat(self.descriptor).st_size < self.rows.nbytes:  # else the read is a SIGBUS
            raise UserError(f"{self._path} was cut while it was used: delete {self._path.parent}")
        # mode="raise" would gather into a second buffer first; the indices are known to be valid.
        np.take(self.rows, index, 0, out=out, mode="clip")


@dataclass(frozen=True)
class Cache:
    """A packed data set, or one that is being packed.

    Attributes:
        folder: its folder; None where frames are decoded every time.
        digest: of sources and settings: its folder's name.
        depth_scale, zoe_scale: metres for one unit of the stored uint16 depths.
        clips: by their number in `frames["clip"]`.
        frames: of `frame_dtype` [N].
        complete: whether all frames were decoded, so that broken ones are known and left out.
        contents: `records_digest` as the header has it; empty without one.
        code: which code packed it: see `packing_code`.
        pseudo: what predicted the pseudo depth; unknown in caches of earlier versions.
        farthest_m: metrics use true depths below this; of the config, not of the files.
        pictures: of the data set, see `Dataset.pictures`.
    """

    folder: Path | None
    digest: str
    label: str
    pseudo_label: str
    height: int
    width: int
    depth_scale: float
    zoe_scale: float
    fields: tuple[Field, ...]
    clips: tuple[Clip, ...]
    frames: np.ndarray
    records: Records
    complete: bool = True
    contents: str = ""
    code: str = ""
    pseudo: PseudoSource = UNKNOWN
    farthest_m: float = FARTHEST_M
    pictures: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def scenes(self) -> tuple[str, ...]:
        return tuple(sorted({clip.scene for clip in self.clips}))

    @property
    def dataset_digest(self) -> str:
        """SHA-256 over `records_digest`, the depths' units, and the clips' classes and speeds.

        The same data have the same digest on any machine. Empty while frames are yet to be decoded.
        """
        records = self.records_digest
        clips = [(clip.scene, clip.name, clip.classes, clip.speed) for clip in self.clips]
        facts = [records, self.depth_scale, self.zoe_scale, clips]
        return digest_json(facts) if records else ""

    @property
    def records_digest(self) -> str:
        """SHA-256 over the names and bytes of all usable records, in hex: what earlier versions
        recorded as `dataset_digest`."""
        return self.contents or contents_digest(self.clips, self.frames)

    @property
    def nbytes(self) -> int:
        return len(self) * self.stride

    @property
    def stride(self) -> int:
        return record_stride(self.fields)

    def indices(self, scenes: tuple[str, ...]) -> np.ndarray:
        """The numbers of the usable records of some scenes, int64 [n], ascending."""
        wanted = np.array([clip.scene in scenes for clip in self.clips])
        try:
            usable = wanted[self.frames["clip"]]
        except IndexError:
            raise UserError(f"{self.folder}/frames.npy is damaged: delete {self.folder}") from None
        if self.complete:
            usable &= self.frames["state"] == PACKED
        return np.flatnonzero(usable)

    @cached_property
    def places(self) -> np.ndarray:
        """A number for each frame, int64 [N]: that of the frame before it and 1, where it is the
        next one of its clip, see `follows`, and more elsewhere."""
        is_next = np.zeros(len(self), bool)
        for number in range(len(self.clips)):
            rows = np.flatnonzero(self.frames["clip"] == number)
            is_next[rows] = follows([name.decode() for name in self.frames["name"][rows]])
        return np.cumsum(2 - is_next)

    def frame_name(self, index: int) -> str:
        """A record's name in messages and reports: scene/clip/frame."""
        frame = self.frames[index]
        clip = self.clips[frame["clip"]]
        return f"{clip.scene}/{clip.name}/{frame['name'].decode()}"

    def read(self, index: int) -> dict[str, np.ndarray]:
        """One record's fields, by name."""
        row = aligned_empty((1, self.stride // WORD_BYTES), np.int64)
        self.records.gather(np.array([index]), row)
        return {field.name: field.view(row[0].view(np.uint8)) for field in self.fields}


def contents_digest(clips: tuple[Clip, ...], frames: np.ndarray) -> str:
    """See `Cache.records_digest`."""
    if (frames["state"] == TO_DO).any():
        return ""
    digest = hashlib.sha256()
    for number, clip in enumerate(clips):
        rows = frames[(frames["clip"] == number) & (frames["state"] == PACKED)]
        for row in rows:
            digest.update(f"{clip.scene}/{clip.name}/{row['name'].decode()}\n".encode())
            digest.update(row["digest"].tobytes())
    return digest.hexdigest()


def open_cache(folder: Path) -> Cache:
    """Map a packed cache. Raises `UserError` where it is missing, damaged or of another version.

    Raises `PackedAgain` where the parts that were opened may be of two folders.
    """
    cache: Cache | None = None
    before = folder_identity(folder)
    try:
        cache = _open_cache(folder)
    except UserError:
        if folder_identity(folder) == before:
            raise
    if cache is None or folder_identity(folder) != before:
        raise PackedAgain(f"{folder} was packed again meanwhile: start this command again")
    return cache


class PackedAgain(UserError):
    """Another folder has taken a packed cache's place while it was opened."""


def folder_identity(folder: Path) -> tuple[int, int] | None:
    """Which folder it is; None where there is none."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _open_cache(folder: Path) -> Cache:
    header = read_header(folder)
    frames = np.array(open_frames(folder))  # read now: a file that is cut later ends no process
    stride, path = header["stride"], folder / "records.bin"
    try:
        size = path.stat().st_size
        if size != len(frames) * stride:
            raise UserError(
                f"{path} has {size} bytes and should have {len(frames) * stride}: delete {folder}"
            )
        records = MappedRecords(path, len(frames), stride)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): delete {folder}") from None
    return make_cache(header, frames, folder, records)


def open_frames(folder: Path, mode: Any = "r") -> np.ndarray:
    """Map frames.npy. Raises `UserError` where it is damaged."""
    try:
        frames = np.lib.format.open_memmap(folder / "frames.npy", mode)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}/frames.npy is damaged ({error}): delete {folder}") from None
    if frames.ndim != 1 or frames.dtype.names != frame_dtype(1).names:
        raise UserError(f"{folder}/frames.npy is no table of frames: delete {folder}")
    return frames


def make_cache(
    header: dict[str, Any],
    frames: np.ndarray,
    folder: Path | None,
    records: Records,
    complete: bool = True,
) -> Cache:
    """A cache from its header and its parts."""
    copied = ("digest", "label", "pseudo_label", "height", "width", "depth_scale", "zoe_scale")
    return Cache(
        folder=folder,
        contents=header.get("dataset_digest", ""),
        code=header.get("code", ""),
        pseudo=source_from_json(header.get("pseudo")),
        fields=record_fields(header["height"], header["width"], header.get("points", False)),
        clips=tuple(
            Clip(**{**clip, "classes": tuple(clip["classes"])}) for clip in header["clips"]
        ),
        frames=frames,
        records=records,
        complete=complete,
        **{name: header[name] for name in copied},
    )
