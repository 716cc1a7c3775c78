"""The packed cache: every frame decoded and resized once, one page-aligned record a frame.

    <root>/<digest>/cache.json     what it holds, and what it was made from
    <root>/<digest>/frames.npy     a row a frame: clip, name, state, digests of sources and record
    <root>/<digest>/records.bin    record i at i * stride: zoe, depth, rgb, objects

The folder's name is the digest of the sources (names, sizes, times) and the settings, so a cache
that exists is valid. Opening one reads the header and maps the rest: it takes as long for a
million frames as for a thousand. `pack.py` makes them.
"""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.data.dataset import Clip
from zoerefine.device import free_memory
from zoerefine.errors import UserError

SCHEMA = 3
PAGE = 4096
WORD = 8  # bytes: rows are gathered as int64, which np.take copies fastest
TO_DO, PACKED, BROKEN = 0, 1, 2  # of a frame's state


@dataclass(frozen=True)
class Field:
    """A field of a record: its place in the record and its array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape))

    def of(self, record: np.ndarray) -> np.ndarray:
        """This field of a record's bytes, as a view."""
        return record[self.offset : self.offset + self.nbytes].view(self.dtype).reshape(self.shape)


def record_fields(height: int, width: int) -> tuple[Field, ...]:
    """The layout of a record. 16-bit fields come first, so they are aligned at any size."""
    fields: list[Field] = []
    offset = 0
    for name, dtype, shape in (
        ("zoe", "uint16", (height, width)),
        ("depth", "uint16", (height, width)),
        ("rgb", "uint8", (height, width, 3)),
        ("objects", "uint8", (height, width)),
    ):
        fields.append(Field(name, dtype, shape, offset))
        offset += fields[-1].nbytes
    return tuple(fields)


def record_stride(fields: tuple[Field, ...]) -> int:
    """Bytes from a record to the next: whole pages, so a record is read without its neighbour."""
    used = fields[-1].offset + fields[-1].nbytes
    return -(-used // PAGE) * PAGE


def frame_dtype(name_bytes: int) -> np.dtype[Any]:
    """A row of frames.npy; names are UTF-8 of at most so many bytes."""
    return np.dtype([("clip", "<i4"), ("state", "u1"), ("stamp", "<u8"), ("digest", "V16"),
                     ("name", f"S{name_bytes}")])  # fmt: skip


class Records(ABC):
    """Where records come from."""

    @abstractmethod
    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        """Write the records of `index`, int64 [n], to `out`, int64 [n, stride / 8]."""

    def expect(self, index: np.ndarray) -> None:  # noqa: B027
        """Begin to read records, int64 [n], that will be gathered soon."""


class MappedRecords(Records):
    """Records of a file, mapped and shared by all processes."""

    def __init__(self, path: Path, count: int, stride: int) -> None:
        self.rows = np.memmap(path, np.int64, "r", shape=(count, stride // WORD))
        self._file = open(path, "rb")  # noqa: SIM115
        self._stays = self.rows.nbytes < free_memory()
        self._unread = count if hasattr(os, "posix_fadvise") else 0

    def expect(self, index: np.ndarray) -> None:
        # A page fault reads little and waits; this has the disk read many records at once.
        # What has been read once stays in memory, if it fits: asking again costs a tenth.
        if self._unread <= 0:
            return
        stride = self.rows.shape[1] * WORD
        for i in index.tolist():
            os.posix_fadvise(self._file.fileno(), i * stride, stride, os.POSIX_FADV_WILLNEED)
        if self._stays:
            self._unread -= len(index)

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        # mode="raise" would gather into a second buffer first; indices are known to be good.
        np.take(self.rows, index, 0, out=out, mode="clip")


@dataclass(frozen=True)
class Cache:
    """What a data set was packed to, or is being packed to.

    Attributes:
        folder: where it lies; None where frames are decoded every time.
        digest: of sources and settings: its folder's name.
        depth_scale, zoe_scale: metres for one unit of the stored uint16 depths.
        clips: what `frames["clip"]` counts.
        frames: of `frame_dtype` [N].
        complete: whether broken frames are known, and left out.
        contents: `dataset_digest` where the header told it.
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

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def scenes(self) -> tuple[str, ...]:
        """The names of the scenes, sorted."""
        return tuple(sorted({clip.scene for clip in self.clips}))

    @property
    def dataset_digest(self) -> str:
        """SHA-256 over the names and bytes of all usable records, in hex.

        The same data pack to the same digest anywhere. Empty while frames are yet to be decoded.
        """
        return self.contents or contents_digest(self.clips, self.frames)

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return len(self) * self.stride

    @property
    def stride(self) -> int:
        """Bytes of a record."""
        return record_stride(self.fields)

    def indices(self, scenes: tuple[str, ...]) -> np.ndarray:
        """The usable records of some scenes, int64 [n], in order."""
        wanted = np.array([clip.scene in scenes for clip in self.clips])
        usable = wanted[self.frames["clip"]]
        if self.complete:
            usable &= self.frames["state"] == PACKED
        return np.flatnonzero(usable)

    def frame_name(self, index: int) -> str:
        """What people call a record: scene/clip/frame."""
        frame = self.frames[index]
        clip = self.clips[frame["clip"]]
        return f"{clip.scene}/{clip.name}/{frame['name'].decode()}"

    def read(self, index: int) -> dict[str, np.ndarray]:
        """One record's fields."""
        row = np.empty((1, self.stride // WORD), np.int64)
        self.records.gather(np.array([index]), row)
        return {field.name: field.of(row[0].view(np.uint8)) for field in self.fields}


def contents_digest(clips: tuple[Clip, ...], frames: np.ndarray) -> str:
    """See `Cache.dataset_digest`."""
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
    """Map a packed cache. Raises `UserError` where it is missing, damaged or of another version."""
    header = read_header(folder)
    frames = open_frames(folder)
    stride, path = header["stride"], folder / "records.bin"
    if not path.exists() or path.stat().st_size != len(frames) * stride:
        raise UserError(
            f"{path} has not the {len(frames) * stride} bytes it should: delete {folder}"
        )
    return cache_of(header, frames, folder, MappedRecords(path, len(frames), stride))


def read_header(folder: Path) -> dict[str, Any]:
    """What cache.json says. Raises `UserError` as `open_cache` does."""
    try:
        header = json.loads((folder / "cache.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} is no packed cache: make one with data.py pack") from None
    except ValueError as error:
        raise UserError(f"{folder}/cache.json is damaged ({error}): delete {folder}") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise UserError(f"{folder} has not schema {SCHEMA}: delete it")
    return header


def open_frames(folder: Path, mode: Any = "r") -> np.ndarray:
    """Map frames.npy. Raises `UserError` where it is damaged."""
    try:
        return np.lib.format.open_memmap(folder / "frames.npy", mode)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}/frames.npy is damaged ({error}): delete {folder}") from None


def cache_of(
    header: dict[str, Any],
    frames: np.ndarray,
    folder: Path | None,
    records: Records,
    complete: bool = True,
) -> Cache:
    """A cache from its header and its parts."""
    same = ("digest", "label", "pseudo_label", "height", "width", "depth_scale", "zoe_scale")
    return Cache(
        folder=folder,
        contents=header.get("dataset_digest", ""),
        fields=record_fields(header["height"], header["width"]),
        clips=tuple(
            Clip(**{**clip, "classes": tuple(clip["classes"])}) for clip in header["clips"]
        ),
        frames=frames,
        records=records,
        complete=complete,
        **{name: header[name] for name in same},
    )
