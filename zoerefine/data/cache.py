"""The packed cache: every frame decoded and resized once, one page-aligned record a frame.

    <root>/<digest>/cache.json     what it holds, and what it was made from
    <root>/<digest>/records.bin    record i at i * stride: zoe, depth, rgb, objects

The digest is that of the sources (names, sizes, times) and the settings, so a cache that exists
is valid. It is packed in `<digest>.partial/` and published by renaming that folder; `state.bin`
there has a byte for each record (0 to do, 1 packed, 2 broken), so a killed build goes on.
"""

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from zoerefine.data.dataset import Dataset, Frame
from zoerefine.data.decode import read_frame
from zoerefine.errors import UserError
from zoerefine.files import digest_json, replacing, sync_file, sync_folder, write_json
from zoerefine.progress import bar, say

SCHEMA = 1
PAGE = 4096
TO_DO, PACKED, BROKEN = 0, 1, 2


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


@dataclass(frozen=True)
class Cache:
    """An opened cache.

    Attributes:
        digest: of sources and settings: its folder's name.
        dataset_digest: of the packed contents: the same data pack to the same digest anywhere.
        depth_scale, zoe_scale: metres for one unit of the stored uint16 depths.
        scene, clip, name: of each record, string arrays [N].
        records: uint8 [N, stride], mapped from the file and shared by all processes.
    """

    folder: Path
    digest: str
    dataset_digest: str
    label: str
    pseudo_label: str
    height: int
    width: int
    depth_scale: float
    zoe_scale: float
    fields: tuple[Field, ...]
    scene: np.ndarray
    clip: np.ndarray
    name: np.ndarray
    records: np.ndarray

    def __len__(self) -> int:
        return len(self.records)

    def indices(self, scenes: tuple[str, ...]) -> np.ndarray:
        """The records of some scenes, int64 [n], in order."""
        return np.flatnonzero(np.isin(self.scene, scenes))

    def frame_name(self, index: int) -> str:
        """What people call a record: scene/clip/frame."""
        return f"{self.scene[index]}/{self.clip[index]}/{self.name[index]}"

    def read(self, index: int) -> dict[str, np.ndarray]:
        """One record's fields, as views."""
        record = self.records[index]
        return {
            f.name: record[f.offset : f.offset + f.nbytes].view(f.dtype).reshape(f.shape)
            for f in self.fields
        }


def build_cache(
    dataset: Dataset, height: int, width: int, root: Path, workers: int, max_broken: float = 0.0
) -> Cache:
    """Pack a data set, or open what is packed already.

    Concurrent builds of one cache wait for the first. `workers` threads decode (0: one a core).

    Raises:
        UserError: too little disk; or more than the share `max_broken` of the frames are broken
            (fewer are left out, and named in `broken.json` in the cache).
    """
    settings = {"schema": SCHEMA, "height": height, "width": width}
    digest = digest_json([dataset.source_digest(), settings])[:16]
    folder = root / digest
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f"{digest}.lock"):
        if folder.exists():
            cache = open_cache(folder)
            say(f"using the packed cache {folder} ({len(cache)} frames)")
            return cache
        builder = _Builder(dataset, height, width, folder, digest)
        builder.pack(workers or os.cpu_count() or 1)
        builder.publish(max_broken)
    return open_cache(folder)


def open_cache(folder: Path) -> Cache:
    """Map a packed cache. Raises `UserError` where it is missing, damaged or of another version."""
    try:
        header = json.loads((folder / "cache.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} is no packed cache: make one with data.py pack") from None
    except ValueError as error:
        raise UserError(f"{folder}/cache.json is damaged ({error}): delete {folder}") from None
    if header.get("schema") != SCHEMA:
        raise UserError(f"{folder} has schema {header.get('schema')}, not {SCHEMA}: delete it")
    count, stride = len(header["frames"]["name"]), header["stride"]
    path = folder / "records.bin"
    if not path.exists() or path.stat().st_size != count * stride:
        raise UserError(f"{path} has not the {count * stride} bytes it should: delete {folder}")
    return Cache(
        folder=folder,
        digest=header["digest"],
        dataset_digest=header["dataset_digest"],
        label=header["label"],
        pseudo_label=header["pseudo_label"],
        height=header["height"],
        width=header["width"],
        depth_scale=header["depth_scale"],
        zoe_scale=header["zoe_scale"],
        fields=tuple(
            Field(f["name"], f["dtype"], tuple(f["shape"]), f["offset"]) for f in header["fields"]
        ),
        scene=np.array(header["frames"]["scene"]),
        clip=np.array(header["frames"]["clip"]),
        name=np.array(header["frames"]["name"]),
        records=np.memmap(path, np.uint8, "r", shape=(count, stride)),
    )


class _Builder:
    """One build: the partial folder, its records and what is done of them."""

    def __init__(
        self, dataset: Dataset, height: int, width: int, folder: Path, digest: str
    ) -> None:
        self.dataset, self.height, self.width = dataset, height, width
        self.folder, self.digest = folder, digest
        self.fields = record_fields(height, width)
        self.stride = record_stride(self.fields)
        self.partial = folder.with_name(f"{folder.name}.partial")
        count = len(dataset.frames)
        self.check_disk(count * self.stride)
        self.partial.mkdir(exist_ok=True)
        self.records = _mapped(self.partial / "records.bin", (count, self.stride))
        self.state = _mapped(self.partial / "state.bin", (count,))
        self.faults: dict[int, str] = {}

    def check_disk(self, needed: int) -> None:
        have = shutil.disk_usage(self.folder.parent).free
        if self.partial.exists():
            have += sum(path.stat().st_blocks * 512 for path in self.partial.iterdir())
        if have < needed:
            raise UserError(
                f"packing {len(self.dataset.frames)} frames needs {needed / 2**30:.1f} GiB, and "
                f"{self.folder.parent} has {have / 2**30:.1f} left: make room or move CACHE.ROOT"
            )

    def pack(self, workers: int) -> None:
        """Decode every frame that is not packed yet."""
        todo = np.flatnonzero(self.state != PACKED).tolist()
        done = len(self.state) - len(todo)
        with (
            bar(len(self.state), "packing", "frame", initial=done) as progress,
            ThreadPoolExecutor(workers) as pool,
        ):
            for _ in pool.map(self.pack_one, todo):
                progress.update()

    def pack_one(self, index: int) -> None:
        try:
            arrays = read_frame(self.dataset.frames[index], self.height, self.width)
        except UserError as error:
            self.faults[index] = str(error)
            self.state[index] = BROKEN
            return
        record = self.records[index]
        for field in self.fields:
            place = record[field.offset : field.offset + field.nbytes]
            place[:] = np.ascontiguousarray(arrays[field.name]).reshape(-1).view(np.uint8)
        self.state[index] = PACKED

    def publish(self, max_broken: float) -> None:
        """Leave out broken frames, write the header, and rename the folder into place."""
        frames = list(self.dataset.frames)
        if self.faults:
            frames = self.leave_out_broken(max_broken)
        sync_file(self.partial / "records.bin")
        write_json(self.partial / "cache.json", self.header(frames))
        (self.partial / "state.bin").unlink()
        os.replace(self.partial, self.folder)
        sync_folder(self.folder.parent)

    def leave_out_broken(self, max_broken: float) -> list[Frame]:
        broken, count = len(self.faults), len(self.state)
        first = self.faults[min(self.faults)]
        if broken == count or broken / count > max_broken:
            raise UserError(
                f"{broken} of {count} frames cannot be packed, more than DATA.MAX_BROKEN allows; "
                f"the first: {first}"
            )
        say(f"left out {broken} broken frames, named in {self.folder / 'broken.json'}: {first}")
        write_json(self.partial / "broken.json", [self.faults[i] for i in sorted(self.faults)])
        whole = np.flatnonzero(self.state == PACKED)
        with replacing(self.partial / "records.bin") as path, open(path, "wb") as file:
            for index in whole:
                file.write(self.records[index].tobytes())
        self.records = _mapped(self.partial / "records.bin", (len(whole), self.stride))
        return [self.dataset.frames[i] for i in whole]

    def header(self, frames: list[Frame]) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "digest": self.digest,
            "dataset_digest": content_digest(self.records, frames),
            "label": self.dataset.label,
            "pseudo_label": self.dataset.pseudo_label,
            "source": str(self.dataset.root),
            "height": self.height,
            "width": self.width,
            "depth_scale": self.dataset.depth_scale,
            "zoe_scale": self.dataset.zoe_scale,
            "stride": self.stride,
            "fields": [vars(field) for field in self.fields],
            "frames": {
                "scene": [frame.scene for frame in frames],
                "clip": [frame.clip for frame in frames],
                "name": [frame.name for frame in frames],
            },
        }


def content_digest(records: np.ndarray, frames: list[Frame]) -> str:
    """SHA-256 over the names and the records' bytes."""
    digest = hashlib.sha256()
    for frame, record in zip(frames, records, strict=True):
        digest.update(f"{frame.scene}/{frame.clip}/{frame.name}\n".encode())
        digest.update(record)
    return digest.hexdigest()


def _mapped(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """A writable map of a file of that many bytes, made (sparse, zeros) where it is not there."""
    there = path.exists() and path.stat().st_size == np.prod(shape)
    return np.memmap(path, np.uint8, "r+" if there else "w+", shape=shape)
