"""Records that are decoded while a training runs, for the cache modes `off` and `fill`."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from zoerefine.data.cache import TO_DO, Records
from zoerefine.data.frame_packer import FramePacker, note_record
from zoerefine.data.partial_cache import PartialCache
from zoerefine.locks import lock
from zoerefine.progress import say


class DecodedRecords(Records):
    """Records decoded each time they are gathered, and not kept: takes no disk space."""

    def __init__(self, packer: FramePacker) -> None:
        self.packer = packer
        self.pool = ThreadPoolExecutor(packer.workers, "decode")

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        list(self.pool.map(self._decode, index.tolist(), out.view(np.uint8)))

    def _decode(self, index: int, record: np.ndarray) -> None:
        state = self.packer.pack(index, record)
        if self.packer.frames["state"][index] == TO_DO:
            note_record(self.packer.frames, index, record, state)


class FilledRecords(Records):
    """Records decoded when they are first gathered, and kept; the last one publishes the cache."""

    def __init__(self, partial: PartialCache) -> None:
        self.partial = partial
        self.pool = ThreadPoolExecutor(partial.packer.workers, "decode")
        self.rows = partial.records.view(np.int64)

    def gather(self, index: np.ndarray, out: np.ndarray) -> None:
        state = self.partial.frames["state"]
        to_do = np.unique(index[state[index] == TO_DO]).tolist()
        list(self.pool.map(self.partial.pack, to_do))
        np.take(self.rows, index, 0, out=out, mode="clip")
        if to_do and not (state == TO_DO).any():
            self._publish()

    def _publish(self) -> None:
        """Publish the cache, unless another thread or process has."""
        folder = self.partial.folder
        with lock(Path(f"{folder}.lock")):
            if not folder.exists():
                self.partial.publish()
                say(f"the cache is filled: {folder}")
