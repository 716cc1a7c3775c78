"""Opens the packed cache of a data set, and packs what is not packed yet.

What a cache was packed from (files, clips, sizes) names its folder: a change packs it again.

`CACHE.MODE` chooses when frames are decoded: `build` packs all of them first; `fill` decodes a
frame when it is first needed and keeps it; `rebuild` packs everything again; `off` decodes a frame
whenever it is needed and keeps nothing.
"""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import create_ignored_folder
from zoerefine.base.files.file_lock import lock
from zoerefine.base.machine.cores import usable_cores
from zoerefine.base.machine.memory import keep_freed_memory
from zoerefine.base.messages import say, warn
from zoerefine.depth.data.cache import cache as store
from zoerefine.depth.data.cache.frame_packer import FramePacker
from zoerefine.depth.data.cache.partial import BROKEN_LIST, PartialCache
from zoerefine.depth.data.dataset import Dataset


def build_cache(
    dataset: Dataset,
    height: int,
    width: int,
    root: Path,
    workers: int = 0,
    max_broken: float = 0.0,
    mode: str = "build",
) -> store.Cache:
    """Pack a data set, or open what is packed already.

    Concurrent builds of one cache wait for the first; concurrent fills share one.

    Args:
        root: the folder of all caches.
        workers: threads that decode; 0: one a core.
        max_broken: share of the frames that may be broken. They are left out and named in
            `broken.json`; in the modes `fill` and `off` their records are all zeros instead.
        mode: build, fill, rebuild or off: see above.

    Raises:
        UserError: too little disk space, or more broken frames than allowed.
    """
    packer = FramePacker(dataset, height, width, workers or usable_cores(), max_broken)
    if mode == "off":
        return store.make_cache(packer.header, packer.frames, None, DecodedRecords(packer), False)
    folder = root / packer.digest
    # A packed cache never changes, so opening it needs neither its lock nor the right to write.
    if folder.exists() and mode != "rebuild":
        with suppress(store.PackedAgain):  # the lock below waits for the end of it
            return _open_packed(packer, folder, mode)
    create_ignored_folder(root)
    with lock(Path(f"{folder}.lock")):
        if folder.exists() and mode != "rebuild":  # another process has packed it meanwhile
            return _open_packed(packer, folder, mode)
        return _pack(PartialCache(packer, folder), mode)


def cache_digest(dataset: Dataset, height: int, width: int) -> str:
    """The digest of the cache of a data set, by its files as they are now."""
    return FramePacker(dataset, height, width, 1, 1.0).digest


def _open_packed(packer: FramePacker, folder: Path, mode: str) -> store.Cache:
    """Raises `UserError` where more frames are left out than `packer` allows.

    Also for a cache of an earlier version, whose digest may miss the frames' clips.
    """
    cache = store.open_cache(folder)
    if not store.has_sources_of(cache.frames, packer.frames):
        raise UserError(
            f"{folder} was packed when its frames were listed in other clips: CACHE.MODE rebuild "
            "packs it again"
        )
    broken = np.flatnonzero(cache.frames["state"] == store.BROKEN)
    if len(broken):
        packer.require_few_broken(len(broken), _first_fault(cache, broken[0]))
    say(f"using the packed cache {folder} ({len(cache)} frames)")
    if cache.code != packer.code:
        warn(
            f"{folder} was packed by other code, or with other versions of its libraries: "
            "CACHE.MODE rebuild packs it again"
        )
    # A run in mode `fill` does not know the broken frames when it starts. When it is resumed, it
    # must see the same order, so it must not leave them out then.
    return dataclasses.replace(cache, complete=mode != "fill")


def _first_fault(cache: store.Cache, index: int) -> str:
    """What was wrong with the first frame that a packed cache leaves out."""
    assert cache.folder is not None
    fault = f"frame {cache.frame_name(index)}"
    with suppress(OSError, ValueError, LookupError):
        fault = json.loads((cache.folder / BROKEN_LIST).read_text(encoding="utf-8"))[0]
    return f"{fault}, when {cache.folder} was packed (CACHE.MODE rebuild packs it again)"


def _pack(partial: PartialCache, mode: str) -> store.Cache:
    keep_freed_memory()
    packer = partial.packer
    if mode == "rebuild":
        partial.discard_packed()
    partial.open()
    if mode != "rebuild":
        partial.copy_unchanged()
    if mode == "fill":
        records = FilledRecords(partial)
        return store.make_cache(packer.header, partial.frames, partial.folder, records, False)
    partial.pack_all()
    partial.publish()
    return store.open_cache(partial.folder)


class DecodedRecords(store.Records):
    """Records decoded each time they are gathered, and not kept: takes no disk space."""

    def __init__(self, packer: FramePacker) -> None:
        keep_freed_memory()
        self.packer = packer
        self.pool = ThreadPoolExecutor(packer.workers, "decode")

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        list(self.pool.map(self._decode, index.tolist(), out.view(np.uint8)))

    def _decode(self, index: int, record: np.ndarray) -> None:
        state = self.packer.pack(index, record)
        if self.packer.frames["state"][index] == store.TO_DO:
            store.note_record(self.packer.frames, index, record, state)


class FilledRecords(store.Records):
    """Records decoded when they are first gathered, and kept; the last one publishes the cache."""

    def __init__(self, partial: PartialCache) -> None:
        self.partial = partial
        self.pool = ThreadPoolExecutor(partial.packer.workers, "decode")
        self.rows = partial.records.view(np.int64)

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        state = self.partial.frames["state"]
        to_do = np.unique(index[state[index] == store.TO_DO]).tolist()
        list(self.pool.map(self.partial.pack, to_do))
        np.take(self.rows, index, 0, out=out, mode="clip")
        if not to_do or (state == store.TO_DO).any():
            return
        folder = self.partial.folder
        with lock(Path(f"{folder}.lock")):
            if not folder.exists():  # else another thread or process has published it
                self.partial.publish()
                say(f"the cache is filled: {folder}")
