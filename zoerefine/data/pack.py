"""Makes packed caches: decodes and resizes every frame once, in parallel, and survives a kill.

A cache is packed in `<digest>.partial/` and published by renaming that folder. Each frame's state
is written after its record, and a digest of the record with it, so that a build which was cut off
goes on from what is provably there. Where an older cache of the same source and settings exists,
records whose files have not changed are taken from it.

Four ways, `CACHE.MODE`: `build` packs, then trains; `fill` trains at once and keeps what it
decodes; `rebuild` packs anew; `off` decodes every time and keeps nothing.
"""

import dataclasses
import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.data.cache import (
    BROKEN,
    PACKED,
    SCHEMA,
    TO_DO,
    WORD,
    Cache,
    Field,
    Records,
    cache_of,
    contents_digest,
    frame_dtype,
    open_cache,
    open_frames,
    read_header,
    record_fields,
    record_stride,
)
from zoerefine.data.dataset import Dataset
from zoerefine.data.decode import read_frame
from zoerefine.data.depth_codec import ZOE_UNIT_M
from zoerefine.errors import UserError
from zoerefine.files import digest_json, sync_file, sync_folder, write_json
from zoerefine.locks import lock
from zoerefine.progress import bar, say, track

MODES = ("build", "fill", "rebuild", "off")


def build_cache(
    dataset: Dataset,
    height: int,
    width: int,
    root: Path,
    workers: int = 0,
    max_broken: float = 0.0,
    mode: str = "build",
) -> Cache:
    """Pack a data set, or open what is packed already.

    Concurrent builds of one cache wait for the first; concurrent fills share one.

    Args:
        workers: threads that decode; 0: one a core.
        max_broken: share of the frames that may be broken; they are left out (or, where the
            cache is not complete, hold no measurement) and named in `broken.json`.
        mode: one of `MODES`.

    Raises:
        UserError: too little disk; more frames are broken than allowed; no such mode.
    """
    if mode not in MODES:
        raise UserError(f"CACHE.MODE must be one of {', '.join(MODES)}, got {mode!r}")
    plan = PackPlan(dataset, height, width, workers or os.cpu_count() or 1, max_broken)
    if mode == "off":
        return cache_of(plan.header, plan.frames, None, Decoder(plan), complete=False)
    packing = Packing(plan, root / plan.digest)
    if mode != "rebuild" and packing.folder.exists():  # published whole: read-only folders will do
        return open_packed(packing, mode)
    root.mkdir(parents=True, exist_ok=True)
    with lock(Path(f"{packing.folder}.lock")):
        if mode == "rebuild":
            packing.discard()
        if packing.folder.exists():
            return open_packed(packing, mode)
        packing.begin()
        if mode != "rebuild":
            packing.take_over()
        if mode == "fill":
            return cache_of(
                plan.header, packing.frames, packing.folder, Filler(packing), complete=False
            )
        packing.pack_all()
        packing.publish()
    return open_cache(packing.folder)


def open_packed(packing: "Packing", mode: str) -> Cache:
    """A cache that is packed already."""
    cache = open_cache(packing.folder)
    say(f"using the packed cache {packing.folder} ({len(cache)} frames)")
    # A run that fills does not know the broken frames; one that goes on where it was cut off
    # must see the same order.
    return dataclasses.replace(cache, complete=mode != "fill")


class PackPlan:
    """What is to be packed, and how a frame is.

    Attributes:
        frames: as `frame_dtype` [N], nothing packed yet.
        faults: what is wrong with broken frames, by their index.
    """

    def __init__(
        self, dataset: Dataset, height: int, width: int, workers: int, max_broken: float
    ) -> None:
        self.dataset, self.height, self.width = dataset, height, width
        self.workers, self.max_broken = workers, max_broken
        self.fields = record_fields(height, width)
        self.stride = record_stride(self.fields)
        self.frames = frame_table(dataset)
        self.settings = {
            "height": height,
            "width": width,
            "depth_scale": dataset.depth_encoding.u16_unit_m,
            "zoe_scale": ZOE_UNIT_M,
            "source": str(dataset.root),
        }
        sources = hashlib.sha256(self.frames["stamp"].tobytes()).hexdigest()
        what = [SCHEMA, self.settings, [dataclasses.asdict(c) for c in dataset.clips], sources]
        self.digest = digest_json(what)[:16]
        self.faults: dict[int, str] = {}

    @property
    def header(self) -> dict[str, Any]:
        """cache.json, but for what only the packed records tell."""
        return {
            "schema": SCHEMA,
            "digest": self.digest,
            "label": self.dataset.label,
            "pseudo_label": self.dataset.pseudo_label,
            **self.settings,
            "stride": self.stride,
            "fields": [vars(field) for field in self.fields],
            "clips": [dataclasses.asdict(clip) for clip in self.dataset.clips],
        }

    def decode(self, index: int, record: np.ndarray) -> int:
        """Write a frame to `record`, uint8 [stride]; returns its state. A broken one is all 0.

        Raises `UserError` where more frames are broken than may be.
        """
        try:
            frame, encoding = self.dataset.frames[index], self.dataset.depth_encoding
            arrays = read_frame(frame, encoding, self.height, self.width)
        except UserError as error:
            record[:] = 0
            self.note_fault(index, str(error))
            return BROKEN
        write_record(record, self.fields, arrays)
        return PACKED

    def note_fault(self, index: int, fault: str) -> None:
        """Remember a broken frame. Raises `UserError` where that is one too many."""
        self.faults[index] = fault
        broken, count = len(self.faults), len(self.frames)
        if broken > self.max_broken * count:
            raise UserError(
                f"{broken} of {count} frames cannot be packed, more than DATA.MAX_BROKEN "
                f"({self.max_broken:g} of them) allows; the first: {self.faults[min(self.faults)]}"
            )


def frame_table(dataset: Dataset) -> np.ndarray:
    """A row a frame, its sources stamped, nothing packed."""
    names = [frame.name.encode() for frame in dataset.frames]
    table = np.zeros(len(names), frame_dtype(max(map(len, names), default=1)))
    clips = {clip.name: number for number, clip in enumerate(dataset.clips)}
    table["clip"] = [clips[frame.clip] for frame in dataset.frames]
    table["name"] = names
    table["stamp"] = dataset.fingerprints()
    return table


def write_record(
    record: np.ndarray, fields: tuple[Field, ...], arrays: dict[str, np.ndarray]
) -> None:
    """Write a frame's fields to their places; what pads the record to a page is 0."""
    for field in fields:
        field.of(record)[...] = arrays[field.name]
    record[fields[-1].offset + fields[-1].nbytes :] = 0


def record_digest(record: Any) -> bytes:
    """The first 16 bytes of a record's SHA-256."""
    return hashlib.sha256(record).digest()[:16]


class Packing:
    """A cache under way: its partial folder, mapped."""

    def __init__(self, plan: PackPlan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.partial = folder.with_name(f"{folder.name}.partial")
        self.own = threading.local()  # a record's buffer for each thread

    def begin(self) -> None:
        """Make the partial folder, or go on with what is there and whole.

        Raises `UserError` where the disk has too little room: all of it is taken now, since a
        mapped file that runs out of disk later kills the process.
        """
        count, stride = len(self.plan.frames), self.plan.stride
        self.partial.mkdir(exist_ok=True)
        with self.enough_disk(count * stride), open(self.partial / "records.bin", "ab") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, count * stride))
        if not (self.partial / "frames.npy").exists():
            self.start_frames()
        self.frames = open_frames(self.partial, "r+")
        self.file = open(self.partial / "records.bin", "r+b", buffering=0)  # noqa: SIM115
        self.records = np.memmap(self.file, np.uint8, "r", shape=(count, stride))
        self.keep_whole()

    def discard(self) -> None:
        """Remove what is packed already; who has it mapped keeps what is mapped."""
        doomed = self.folder.with_name(f"{self.folder.name}.discarded")
        for folder in (self.folder, self.partial):
            shutil.rmtree(doomed, ignore_errors=True)
            if folder.exists():
                os.replace(folder, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    @contextmanager
    def enough_disk(self, needed: int) -> Iterator[None]:
        """Check first, and tell the system's own word in the same way."""
        place = self.folder.parent
        have = shutil.disk_usage(place).free + allocated(self.partial)
        fault = UserError(
            f"packing {len(self.plan.frames)} frames needs {needed / 2**30:.2f} GiB, and {place} "
            f"has {have / 2**30:.2f} left: make room, move CACHE.ROOT, or train with CACHE.MODE off"
        )
        if have < needed:
            raise fault
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise fault from None

    def start_frames(self) -> None:
        """frames.npy with nothing packed, whole or not there."""
        temporary = self.partial / "frames.npy.tmp"
        with open(temporary, "wb") as file:
            np.save(file, self.plan.frames)
        os.replace(temporary, self.partial / "frames.npy")

    def keep_whole(self) -> None:
        """Of what an earlier build packed, keep the records that are what it wrote."""

        def check(index: int) -> None:
            if self.frames["digest"][index].tobytes() != record_digest(self.records[index]):
                self.frames["state"][index] = TO_DO

        packed = np.flatnonzero(self.frames["state"] == PACKED)
        if len(packed):
            with ThreadPoolExecutor(self.plan.workers) as pool:
                list(track(pool.map(check, packed), len(packed), "checking", "frame"))
        self.frames["state"][self.frames["state"] == BROKEN] = TO_DO  # it may be mended by now

    def take_over(self) -> None:
        """Copy records of unchanged files from the cache that has most of them."""
        others = [path.parent for path in sorted(self.folder.parent.glob("*/cache.json"))]
        found = [(folder, *self.unchanged(folder)) for folder in others]
        folder, ours, theirs = max(found, key=lambda one: len(one[1]), default=(None, [], []))
        if folder is None or not len(ours):
            return
        say(f"{len(ours)} of {len(self.frames)} frames are unchanged since {folder}: taken from it")
        old = open_cache(folder)
        row = np.empty((1, self.plan.stride // WORD), np.int64)
        for here, there in track(zip(ours, theirs, strict=True), len(ours), "copying", "frame"):
            old.records.gather(np.array([there]), row)
            if record_digest(row.view(np.uint8)[0]) == old.frames["digest"][there].tobytes():
                self.write(int(here), row.view(np.uint8)[0], PACKED)

    def unchanged(self, folder: Path) -> tuple[np.ndarray, np.ndarray]:
        """Our frames that a packed cache has, and their places there."""
        none = np.array([], int), np.array([], int)
        try:
            header = read_header(folder)
            theirs = open_cache(folder).frames
        except UserError:
            return none
        if any(header.get(key) != value for key, value in self.plan.settings.items()):
            return none
        todo = np.flatnonzero(self.frames["state"] == TO_DO)
        packed = np.flatnonzero(theirs["state"] == PACKED)
        # A stamp holds the files' names, so equal stamps are the same frame.
        _, ours_at, theirs_at = np.intersect1d(
            self.frames["stamp"][todo], theirs["stamp"][packed], return_indices=True
        )
        return todo[ours_at], packed[theirs_at]

    def pack_all(self) -> None:
        """Pack every frame that is not packed yet."""
        todo = np.flatnonzero(self.frames["state"] == TO_DO).tolist()
        done = len(self.frames) - len(todo)
        with (
            bar(len(self.frames), "packing", "frame", initial=done) as progress,
            ThreadPoolExecutor(self.plan.workers) as pool,
        ):
            try:
                for _ in pool.map(self.pack, todo):
                    progress.update()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def pack(self, index: int) -> None:
        """Pack one frame."""
        if not hasattr(self.own, "record"):
            self.own.record = np.empty(self.plan.stride, np.uint8)
        self.write(index, self.own.record, self.plan.decode(index, self.own.record))

    def write(self, index: int, record: np.ndarray, state: int) -> None:
        """Keep a record. A write costs half of what the page faults of a mapped file would."""
        os.pwrite(self.file.fileno(), record.data, index * self.plan.stride)
        note_record(self.frames, index, record, state)

    def publish(self) -> None:
        """Write the header, see everything on the disk, and rename the folder into place."""
        self.name_broken()
        sync_file(self.partial / "frames.npy")
        sync_file(self.partial / "records.bin")
        contents = contents_digest(tuple(self.plan.dataset.clips), self.frames)
        header = self.plan.header | {"dataset_digest": contents}
        write_json(self.partial / "cache.json", header)
        os.replace(self.partial, self.folder)
        sync_folder(self.folder.parent)

    def name_broken(self) -> None:
        """Say which frames are left out, and why, and write it down."""
        broken = np.flatnonzero(self.frames["state"] == BROKEN).tolist()
        if not broken:
            return
        frames, faults = self.plan.dataset.frames, self.plan.faults
        texts = [faults.get(i, f"{frames[i].rgb}: found broken by another process") for i in broken]
        path = self.folder / "broken.json"
        say(f"left out {len(broken)} broken frames, named in {path}: {texts[0]}")
        write_json(self.partial / "broken.json", texts)


def note_record(frames: np.ndarray, index: int, record: np.ndarray, state: int) -> None:
    """Say that a record is written. The state comes last: a kill leaves a frame to do."""
    frames["digest"][index] = np.void(record_digest(record))
    frames["state"][index] = state


def allocated(folder: Path) -> int:
    """Bytes of the disk that a folder's files take."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir()) if folder.exists() else 0


class Decoder(Records):
    """Records decoded whenever they are asked for, for whoever has no disk to spare."""

    def __init__(self, plan: PackPlan) -> None:
        self.plan = plan
        self.pool = ThreadPoolExecutor(plan.workers, "decode")

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        list(self.pool.map(self.decode, index.tolist(), out.view(np.uint8)))

    def decode(self, index: int, record: np.ndarray) -> None:
        state = self.plan.decode(index, record)
        if self.plan.frames["state"][index] == TO_DO:
            note_record(self.plan.frames, index, record, state)


class Filler(Records):
    """Records decoded when they are asked for the first time, and kept."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.pool = ThreadPoolExecutor(packing.plan.workers, "decode")
        self.rows = packing.records.view(np.int64)

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        state = self.packing.frames["state"]
        todo = np.unique(index[state[index] == TO_DO]).tolist()
        list(self.pool.map(self.packing.pack, todo))
        np.take(self.rows, index, 0, out=out, mode="clip")
        if todo and not (state == TO_DO).any():
            self.publish()

    def publish(self) -> None:
        """The last frame is packed: publish, unless another thread or process has."""
        folder = self.packing.folder
        with lock(Path(f"{folder}.lock")):
            if not folder.exists():
                self.packing.publish()
                say(f"the cache is filled: {folder}")
