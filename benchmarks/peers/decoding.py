"""Our own decoding and resizing, in threads or in worker processes.

argv: folder of a data set, samples, workers, threads | processes. Threads write records into one
buffer for each batch. Processes are DataLoader's: their batches come through shared memory.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import torch
from side import BATCH, HEIGHT, WIDTH, serve
from torch.utils.data import DataLoader, Dataset

from zoerefine.depth.data.cache.frame_packer import FramePacker
from zoerefine.depth.data.layouts.readers import open_dataset


class Frames(Dataset[torch.Tensor]):
    """A record for each sample; the frames repeat."""

    def __init__(self, folder: Path, samples: int) -> None:
        cv2.setNumThreads(0)
        self.packer = FramePacker(open_dataset(folder), HEIGHT, WIDTH, 1, 0.0)
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        record = np.empty(self.packer.stride, np.uint8)
        self.decode(index, record)
        return torch.from_numpy(record)

    def decode(self, index: int, record: np.ndarray) -> None:
        """Write the record of a sample."""
        self.packer.pack(index % len(self.packer.frames), record)


def in_threads(frames: Frames, workers: int) -> Iterator[np.ndarray]:
    """An epoch in random order."""
    order = np.random.default_rng().permutation(len(frames)).tolist()
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(order), BATCH):
            batch = np.empty((BATCH, frames.packer.stride), np.uint8)
            chosen = order[start : start + BATCH]
            list(pool.map(frames.decode, chosen, batch))
            yield batch[: len(chosen)]


def in_processes(frames: Frames, workers: int) -> Iterator[torch.Tensor]:
    """An epoch in random order."""
    yield from DataLoader(frames, BATCH, shuffle=True, num_workers=workers)


if __name__ == "__main__":
    frames, workers = Frames(Path(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3])
    ways: dict[str, Callable[[Frames, int], Iterator[object]]] = {
        "threads": in_threads,
        "processes": in_processes,
    }
    serve(lambda: ways[sys.argv[4]](frames, workers), len(frames))
