"""A cache that is being packed, in a folder of its own; a kill at any moment loses no record.

A cache is packed in `<digest>.partial/` and published by renaming that folder. Each frame's state
is written after its record, together with the record's digest, so after a kill a build continues
with the records whose digests are right. `partial.json` there states the length of each file and
which code packs; files of another length, or of other code, are packed again. Records of unchanged
files are copied from an older cache of the same source, settings and code.
"""

import errno
import json
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files import atomic
from zoerefine.base.machine.memory import aligned_empty
from zoerefine.base.messages import say
from zoerefine.base.progress import bar, track
from zoerefine.depth.data.cache import cache as store
from zoerefine.depth.data.cache.frame_packer import FramePacker

FACTS = "partial.json"
BROKEN_LIST = "broken.json"
MIB = 2**20


class PartialCache:
    """The partial folder of a cache, mapped; `open` comes first.

    Attributes:
        folder: of the published cache.
        frames: the frame table of the partial folder, mapped; writing to it changes the file.
        records: uint8 [N, stride], mapped for reading.
    """

    frames: np.ndarray
    records: np.ndarray

    def __init__(self, packer: FramePacker, folder: Path) -> None:
        self.packer, self.folder = packer, folder
        self.partial = folder.with_name(f"{folder.name}.partial")
        self._per_thread = threading.local()  # holds each thread's record buffer

    def discard_packed(self) -> None:
        """Remove what is packed already. Processes that have it mapped keep their data."""
        doomed = self.folder.with_name(f"{self.folder.name}.discarded")
        for folder in (self.folder, self.partial):
            shutil.rmtree(doomed, ignore_errors=True)
            if folder.exists():
                os.replace(folder, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def open(self) -> None:
        """Make the partial folder, or continue with the intact records of an earlier build.

        Takes all the disk space at once, because a mapped file that runs out of disk space later
        kills the process. Raises `UserError` where there is too little.
        """
        count, stride = len(self.packer.frames), self.packer.stride
        self.partial.mkdir(exist_ok=True)
        atomic.remove_half_written(self.partial.glob(atomic.HALF_WRITTEN), r"[a-z.]+")
        self._discard_unless_whole()
        path = self.partial / "records.bin"
        with self._enough_disk(count * stride), open(path, "ab") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, count * stride))
        self.frames = self._open_frames()
        self._write_facts()
        self._fd = os.open(path, os.O_RDWR)
        weakref.finalize(self, os.close, self._fd)
        self.records = np.memmap(path, np.uint8, "r", shape=(count, stride))
        self._keep_intact()

    @contextmanager
    def _enough_disk(self, needed: int) -> Iterator[None]:
        """Check the disk space first; an error of the system about it reads the same."""
        place = self.folder.parent
        taken = sum(path.stat().st_blocks * 512 for path in self.partial.iterdir())
        free = shutil.disk_usage(place).free + taken  # what an earlier build took is used again
        fault = UserError(
            f"packing {len(self.packer.frames)} frames needs {needed / MIB:,.1f} MiB, and {place} "
            f"has {free / MIB:,.1f} left: make room, move CACHE.ROOT, or train with CACHE.MODE off"
        )
        if free < needed:
            raise fault
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise fault from None

    def _discard_unless_whole(self) -> None:
        """Remove an earlier build whose table was cut short, or which other code packed.

        It comes before they are mapped for writing, which would fill up with zeros what is missing.
        Of records that were cut short only the missing ones are packed again.
        """
        facts = self._facts()
        if facts and facts["code"] != self.packer.code:
            say(f"{self.partial} was begun by other code: all frames are packed again")
        elif facts and facts["frames.npy"] != file_length(self.partial / "frames.npy"):
            say(f"{self.partial}/frames.npy was cut short: all frames are packed again")
        elif facts:
            if facts["records.bin"] != file_length(self.partial / "records.bin"):
                say(f"{self.partial}/records.bin was cut short: what is missing is packed again")
            return
        for name in (FACTS, "frames.npy", "records.bin"):  # the facts first: a kill may follow
            (self.partial / name).unlink(missing_ok=True)

    def _facts(self) -> dict[str, Any]:
        """What partial.json states; empty where there is none, or another file."""
        with suppress(OSError, ValueError):
            facts = json.loads((self.partial / FACTS).read_text(encoding="utf-8"))
            if isinstance(facts, dict) and facts.keys() == {"code", "frames.npy", "records.bin"}:
                return facts
        return {}

    def _write_facts(self) -> None:
        """State the code, and the lengths of the files, which packing does not change."""
        lengths = {name: file_length(self.partial / name) for name in ("frames.npy", "records.bin")}
        atomic.write_json(self.partial / FACTS, {"code": self.packer.code} | lengths)

    def _open_frames(self) -> np.ndarray:
        """The frame table of an earlier build, or a new one where there is none."""
        path, expected = self.partial / "frames.npy", self.packer.frames
        if path.exists():
            frames = store.open_frames(self.partial, "r+")
            if store.has_sources_of(frames, expected):
                return frames
        with atomic.replacing(path) as temporary, open(temporary, "wb") as file:
            np.save(file, expected)
        return store.open_frames(self.partial, "r+")

    def _keep_intact(self) -> None:
        """Keep the records of an earlier build whose digests are right; pack the rest again."""

        def check(index: int) -> None:
            if self.frames["digest"][index].tobytes() != store.record_digest(self.records[index]):
                self.frames["state"][index] = store.TO_DO

        packed = np.flatnonzero(self.frames["state"] == store.PACKED)
        if len(packed):
            with ThreadPoolExecutor(self.packer.workers) as pool:
                list(track(pool.map(check, packed), len(packed), "checking", "frame"))
        # A frame that was broken then may have been repaired since.
        self.frames["state"][self.frames["state"] == store.BROKEN] = store.TO_DO

    def copy_unchanged(self) -> None:
        """Copy the records of unchanged files from the older cache that has most of them."""
        others = [path.parent for path in sorted(self.folder.parent.glob("*/cache.json"))]
        found = [one for one in map(self._unchanged_in, others) if one and len(one[1])]
        if not found:
            return
        old, ours, theirs = max(found, key=lambda one: len(one[1]))
        say(f"copying {len(ours)} of {len(self.frames)} frames, unchanged since {old.folder}")
        row = aligned_empty((1, self.packer.stride // store.WORD_BYTES), np.int64)
        record = row.view(np.uint8)[0]
        for our, their in track(zip(ours, theirs, strict=True), len(ours), "copying", "frame"):
            old.records.gather(np.array([their]), row)
            if store.record_digest(record) == old.frames["digest"][their].tobytes():
                self._write(int(our), record, store.PACKED)

    def _unchanged_in(self, folder: Path) -> tuple[store.Cache, np.ndarray, np.ndarray] | None:
        """An older cache, and the frames to pack that it has: their numbers here, and there."""
        try:
            header = store.read_header(folder)
            if any(header.get(key) != value for key, value in self.packer.settings.items()):
                return None
            old = store.open_cache(folder)
        except (UserError, KeyError) as error:  # damage there never stops work here
            say(f"no records are copied from {folder}: {error}")
            return None
        if header.get("code") != self.packer.code:
            say(f"no records are copied from {folder}: other code packed them")
            return None
        to_do = np.flatnonzero(self.frames["state"] == store.TO_DO)
        packed = np.flatnonzero(old.frames["state"] == store.PACKED)
        # A fingerprint holds the files' names, so equal fingerprints are the same frame.
        _, ours_at, theirs_at = np.intersect1d(
            self.frames["fingerprint"][to_do],
            old.frames["fingerprint"][packed],
            return_indices=True,
        )
        return old, to_do[ours_at], packed[theirs_at]

    def pack_all(self) -> None:
        """Pack every frame that is not packed yet."""
        to_do = np.flatnonzero(self.frames["state"] == store.TO_DO).tolist()
        done = len(self.frames) - len(to_do)
        with (
            bar(len(self.frames), "packing", "frame", initial=done) as progress,
            ThreadPoolExecutor(self.packer.workers) as pool,
        ):
            try:
                for _ in pool.map(self.pack, to_do):
                    progress.update()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def pack(self, index: int) -> None:
        """Pack one frame; any thread may."""
        if not hasattr(self._per_thread, "record"):
            self._per_thread.record = aligned_empty((self.packer.stride,), np.uint8)
        record = self._per_thread.record
        self._write(index, record, self.packer.pack(index, record))

    def _write(self, index: int, record: np.ndarray, state: int) -> None:
        # Writing costs half of what the page faults of a file mapped for writing would.
        os.pwrite(self._fd, record.data, index * self.packer.stride)
        store.note_record(self.frames, index, record, state)

    def publish(self) -> None:
        """Write the header, force everything to the disk, and rename the folder.

        Raises `UserError` where the frame table has been damaged since it was opened.
        """
        if not self._is_complete():
            raise UserError(
                f"{self.partial}/frames.npy has been changed while frames were packed: run the "
                "same command again"
            )
        self._name_broken()
        atomic.sync(self.partial / "frames.npy")
        atomic.sync(self.partial / "records.bin")
        contents = store.contents_digest(tuple(self.packer.dataset.clips), self.frames)
        store.write_header(self.partial, self.packer.header | {"dataset_digest": contents})
        os.replace(self.partial, self.folder)
        atomic.sync(self.folder.parent)
        (self.folder / FACTS).unlink(missing_ok=True)

    def _is_complete(self) -> bool:
        """Whether the table on the disk is of this data set, and no frame is left to pack."""
        stored = np.load(self.partial / "frames.npy")
        return store.has_sources_of(stored, self.packer.frames) and bool(
            (stored["state"] != store.TO_DO).all()
        )

    def _name_broken(self) -> None:
        """Record and report which frames are left out, and why."""
        broken = np.flatnonzero(self.frames["state"] == store.BROKEN).tolist()
        if not broken:
            return
        frames, faults = self.packer.dataset.frames, self.packer.faults
        texts = [faults.get(i, f"{frames[i].rgb}: found broken by another process") for i in broken]
        self.packer.require_few_broken(len(broken), texts[0])
        path = self.folder / BROKEN_LIST
        say(f"left out {len(broken)} broken frames, listed in {path}; the first: {texts[0]}")
        atomic.write_json(self.partial / BROKEN_LIST, texts)


def file_length(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
