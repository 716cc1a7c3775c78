"""Opens the packed cache of a data set, and packs what is not packed yet.

`CACHE.MODE` chooses when frames are decoded: `build` packs all of them first; `fill` decodes a
frame when it is first needed and keeps it; `rebuild` packs everything again; `off` decodes a frame
whenever it is needed and keeps nothing.
"""

import dataclasses
from pathlib import Path

from zoerefine.data.cache import Cache, make_cache, open_cache
from zoerefine.data.dataset import Dataset
from zoerefine.data.frame_packer import FramePacker
from zoerefine.data.on_demand import DecodedRecords, FilledRecords
from zoerefine.data.packing_code import packing_code
from zoerefine.data.partial_cache import PartialCache
from zoerefine.files import create_ignored_folder
from zoerefine.locks import lock
from zoerefine.processor_use import usable_cores
from zoerefine.progress import say, warn


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
        return make_cache(packer.header, packer.frames, None, DecodedRecords(packer), False)
    folder = root / packer.digest
    # A packed cache never changes, so opening it needs neither its lock nor the right to write.
    if folder.exists() and mode != "rebuild":
        return _open_packed(folder, mode)
    create_ignored_folder(root)
    with lock(Path(f"{folder}.lock")):
        if folder.exists() and mode != "rebuild":  # another process has packed it meanwhile
            return _open_packed(folder, mode)
        return _pack(PartialCache(packer, folder), mode)


def _open_packed(folder: Path, mode: str) -> Cache:
    cache = open_cache(folder)
    say(f"using the packed cache {folder} ({len(cache)} frames)")
    if cache.code != packing_code():
        warn(
            f"{folder} was packed by other code, or with other versions of its libraries: "
            "CACHE.MODE rebuild packs it again"
        )
    # A run in mode `fill` does not know the broken frames when it starts. When it is resumed, it
    # must see the same order, so it must not leave them out then.
    return dataclasses.replace(cache, complete=mode != "fill")


def _pack(partial: PartialCache, mode: str) -> Cache:
    packer = partial.packer
    if mode == "rebuild":
        partial.discard_packed()
    partial.open()
    if mode != "rebuild":
        partial.copy_unchanged()
    if mode == "fill":
        records = FilledRecords(partial)
        return make_cache(packer.header, partial.frames, partial.folder, records, False)
    partial.pack_all()
    partial.publish()
    return open_cache(partial.folder)
